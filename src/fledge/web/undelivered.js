// Results that found nobody, and messages that could not be sent.

import { arrange, button, el, fill, glyph } from "./dom.js";
import { full, span } from "./format.js";
import { call } from "./gateway.js";
import { markdown } from "./markdown.js";
import { sessionLink } from "./names.js";

export const title = () => "Undelivered";

export function mount(root, params, { store }) {
  const cards = el("div", { id: "undelivered-cards" });
  const empty = el("div", { class: "teach", id: "undelivered-empty" });
  fill(root, el("section", { class: "page narrow", tabindex: "0", "aria-label": "Undelivered" },
    el("header", { class: "head" }, el("div", null, el("h1", null, "Undelivered"), el("p", { class: "soft" }, "Results that are safe but found nobody, and messages that could not be sent."))), cards, empty));
  const made = new Map();
  const draw = () => {
    for (const one of store.undelivered) if (!made.has(one.key)) made.set(one.key, card(store, one));
    arrange(cards, store.undelivered.map((one) => made.get(one.key)));
    empty.hidden = store.undelivered.length > 0;
    fill(empty, store.isLoaded ? el("h2", null, "Everything has arrived.") : "loading …");
  };
  draw();
  store.readUndelivered(); // no event tells of a message that was given up
  return store.subscribe(draw);
}

function card(store, one) {
  const act = (method) => async () => { await call(method, { target: one.key }); await store.readUndelivered(); };
  const about = one.sessionKey ? sessionLink(store, one.sessionKey) : el("b", null, one.label || one.key);
  return el("article", { class: "card edge-giveup", "data-run": one.sessionKey },
    el("header", { class: "cardline" }, glyph("giveup"), about, one.kind === "message" && el("span", null, `to ${one.label}`), el("span", { class: "grow" }),
      one.arrivedAt && el("time", { class: "num soft", title: full(one.arrivedAt) }, `${span(Date.now() - one.arrivedAt)} ago`)),
    el("p", { class: "because" }, one.reason), markdown(one.text || "(without words)"),
    el("footer", { class: "cardfoot acts" }, button("Deliver again", { kind: "primary", ico: "retry", act: act("undelivered.retry") }), button("Dismiss", { kind: "ghost", act: act("undelivered.dismiss") })));
}
