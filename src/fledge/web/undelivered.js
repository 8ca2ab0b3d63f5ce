// Undelivered: results that could not be delivered, and messages that could not be sent. Each card names the recipient
// (of a message, the sender, too), the reason and how long it is kept. It can be delivered again or dismissed, and a
// result can be given to another conversation. A card that was dealt with stays where it is until the view is left, so
// that nothing moves under the pointer.

import { foldable } from "./cards.js";
import { command, page } from "./desk.js";
import { anew, announce, arrange, button, el, fail, fill, glyph, icon, refill, renew } from "./dom.js";
import { age, full, plural, sentence, when } from "./format.js";
import { change } from "./gateway.js";
import * as layers from "./layers.js";
import { markdown } from "./markdown.js";
import { conversationName, runPath, sessionLink, shortKey } from "./names.js";
import { isRun } from "./store.js";
import { present } from "./time.js";

const LIST = "fledge undelivered";

export const title = () => "Undelivered";

export function mount(root, params, { store }) {
  const cards = el("div", { class: "stack", id: "undelivered-cards" });
  const empty = nothing();
  fill(root, page("Undelivered", "Results that are kept but could not be delivered, and messages that could not be sent.", { kind: "narrow" }, cards, empty));
  const made = new Map(); // cards by key
  const draw = () => {
    for (const one of store.undelivered) {
      const known = made.get(one.key);
      if (known && (known.isBusy() || (!known.hasLeft && known.tries === one.tries))) continue;
      made.set(one.key, card(store, one)); // new, or back again
      if (known) renew(known.element, made.get(one.key).element);
    }
    const waiting = new Set(store.undelivered.map((one) => one.key));
    for (const [key, known] of made) if (!waiting.has(key)) known.gone();
    arrange(cards, [...made.values()].map(({ element }) => element));
    empty.hidden = waiting.size > 0 || !store.isLoaded;
  };
  draw();
  store.readUndelivered(); // there is no event for a message that was given up
  return store.subscribe(draw);
}

function card(store, one) {
  const isMessage = one.kind === "message";
  const text = one.text || "(without words)";
  const body = el("div", { class: "result" }, markdown(text));
  const foot = el("footer", { class: "cardfoot acts" });
  const more = foldable(body, text);
  const since = one.arrivedAt && el("time", { class: "soft nowrap", datetime: new Date(one.arrivedAt).toISOString(), title: full(one.arrivedAt) },
    el("span", { class: "num", "data-since": one.arrivedAt }, age(present() - one.arrivedAt)), " ago");
  let isBusy = false; // an action of this card is not finished, or the list is not read again since
  let isDone = false;
  const done = (words, tone) => {
    if (isDone) return;
    isDone = true;
    const hadFocus = element.contains(document.activeElement);
    element.classList.add("answered");
    fill(foot, el("p", { class: "cardline outcome" }, glyph(tone), el("span", null, words)), more && el("span", { class: "grow" }), more);
    if (hadFocus) element.focus();
    announce(words);
  };
  const act = (method, more, words, tone) => async () => {
    isBusy = true;
    try {
      await change(method, { target: one.key, ...more });
      done(words, tone);
    } finally {
      await store.readUndelivered();
      isBusy = false;
      store.changed();
    }
  };
  const give = (to) => act("undelivered.retry", { to: to.key }, `Offered to ${conversationName(to)}.`, "announcing")();
  fill(foot,
    button("Deliver again", { kind: "primary", ico: "retry", act: act("undelivered.retry", {}, "It will be delivered again. If that fails, it comes back here.", "announcing") }),
    !isMessage && button("To a conversation …", { ico: "chat", act: () => chooseConversation(store, give) }),
    button("Dismiss", { kind: "ghost", act: act("undelivered.dismiss", {}, "Dismissed. It will not be delivered.", "killed") }),
    el("span", { class: "grow" }),
    more,
    isRun(one.sessionKey) && el("a", { class: "runlink", href: runPath(one.sessionKey) }, "Trace"));
  const element = anew(el("article", { class: "card edge-giveup", tabindex: "-1", "data-run": one.sessionKey, "aria-label": `${isMessage ? "Message to" : "Result of"} ${one.label || one.key}` },
    el("header", { class: "cardline" }, glyph("giveup"),
      isMessage ? el("b", { class: "grow" }, `message to ${one.label}`) : el("a", { class: "runlink strong clip grow", href: runPath(one.sessionKey) }, one.label || shortKey(one.key)), since),
    el("p", { class: "task" }, isMessage ? "from " : "was for ", isMessage ? sessionLink(store, one.sessionKey) : recipient(store, one)),
    el("p", { class: "because" }, icon("warn", 14), el("span", null, sentence(one.reason || "It is not known why it could not be delivered"), el("span", { class: "faint" }, ` ${plural(one.tries, "try", "tries")}.`, one.keptUntilAt && ` Kept until ${when(one.keptUntilAt)}.`))),
    body, foot));
  const made = { element, tries: one.tries, hasLeft: false, isBusy: () => isBusy };
  made.gone = () => {
    if (isBusy) return;
    made.hasLeft = true;
    done("Dealt with elsewhere, or no longer kept.", "waiting");
  };
  return made;
}

/** The intended recipient of a result: a link to the session, or an address. */
function recipient(store, { to }) {
  if (!to) return el("b", null, "no requester");
  return to.startsWith("agent:") ? sessionLink(store, to) : el("b", null, to);
}

/** Ask for a conversation; `chosen(conversation)` is called with it. */
function chooseConversation(store, chosen) {
  const search = el("input", { type: "search", class: "field", placeholder: "Search conversations", "aria-label": "Search conversations", autocomplete: "off", "data-first": true });
  const list = el("ul", { class: "choices", "aria-label": "Conversations" });
  const draw = (found) => refill(list, found.length
    ? found.map((one) => el("li", null, button(conversationName(one), { kind: "ghost wide", ico: "chat", title: one.firstWords || null, act: async () => { await chosen(one); layers.close(); } })))
    : el("li", { class: "soft" }, "No conversation is called that."));
  let asked = 0;
  search.addEventListener("input", () => {
    const mine = (asked += 1);
    const words = search.value.trim();
    const found = words ? store.findConversations(words) : Promise.resolve([...store.conversations.values()]);
    found.then((rows) => { if (mine === asked) draw(rows); }).catch(fail);
  });
  draw([...store.conversations.values()]);
  layers.dialog("Give it to a conversation", "chat", [el("p", { class: "soft" }, "The conversation reads the result as if it had asked for it, exactly once."), search, list], null);
}

const nothing = () => el("div", { class: "teach", id: "undelivered-empty" },
  glyph("ok", 40), el("h2", null, "Everything has arrived"),
  el("p", { class: "soft" }, "When a result cannot be delivered, because its conversation was deleted or a channel does not answer, it is kept here instead of being lost. You can deliver it again, give it to another conversation, or let it go."),
  el("p", { class: "soft" }, "The same list in a terminal:"),
  command(LIST));
