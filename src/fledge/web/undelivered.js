// Results that nobody was told, and messages that could not be sent.

import { call } from "./gateway.js";
import { chatLink, isRun } from "./conversations.js";
import { button, byId, chip, clock, coalesced, el, released, runLink, words } from "./dom.js";

export class Undelivered {
  #was = "";

  constructor(failed) {
    this.failed = failed;
    this.refresh = coalesced(() => this.#read(), failed);
  }

  async #read() {
    const found = await call("undelivered.list");
    byId("undelivered-count").textContent = found.length;
    byId("undelivered-count").hidden = found.length === 0;
    byId("undelivered-empty").textContent = "Everything has arrived.";
    byId("undelivered-empty").hidden = found.length > 0;
    const is = JSON.stringify(found);
    if (is === this.#was) return;
    await released(byId("undelivered-cards"));
    this.#was = is;
    byId("undelivered-cards").replaceChildren(...found.map((one) => this.#card(one)));
  }

  #card(one) {
    const act = (method) => async () => { await call(method, { target: one.key }); await this.refresh(); };
    const about = isRun(one.sessionKey) ? [runLink(one.sessionKey, one.label || one.sessionKey)]
      : one.sessionKey ? [chatLink(one.sessionKey), ` to ${one.label}`] : [one.label || one.key];
    return el("article", { class: "card", "data-run": one.sessionKey },
      el("h3", {}, ...about, " ", chip(one.status)),
      el("p", { class: "muted" }, `${one.kind}${one.arrivedAt ? `, ${clock(one.arrivedAt)}` : ""}: ${one.reason}`),
      words(one.text || "(without words)"),
      el("div", { class: "row" },
        button("Retry", act("undelivered.retry"), this.failed, "primary"),
        button("Dismiss", act("undelivered.dismiss"), this.failed, "danger")));
  }
}
