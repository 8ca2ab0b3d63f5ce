// What waits for a person: tool calls to allow or deny, plans to approve or reject. A card never changes once it is
// shown, and new ones come last, so that a button always means what was read beside it.

import { call } from "./gateway.js";
import { chatLink, isRun } from "./conversations.js";
import { button, byId, clock, coalesced, el, runLink, words } from "./dom.js";

export class Waiting {
  #cards = new Map();

  /** `counted(number)` is told how many there are, `asked(keys)` whose calls wait. */
  constructor(failed, counted, asked) {
    this.asked = asked;
    this.failed = failed;
    this.counted = counted;
    this.refresh = coalesced(() => this.#read(), failed);
  }

  async #read() {
    const [questions, plans] = await Promise.all([call("approvals.list"), call("plans.list")]);
    const wanted = new Map();
    for (const one of questions) wanted.set(`question ${one.id} ${one.digest}`, () => this.#question(one));
    for (const one of plans) wanted.set(`plan ${one.sessionKey} ${one.runId}`, () => this.#plan(one));
    for (const [name, card] of this.#cards) {
      if (wanted.has(name)) continue;
      const focused = card.contains(document.activeElement);
      card.remove();
      this.#cards.delete(name);
      if (focused) byId("say").focus();
    }
    for (const [name, make] of wanted) {
      if (this.#cards.has(name)) continue;
      this.#cards.set(name, make());
      byId("waiting-cards").append(this.#cards.get(name));
    }
    byId("waiting").hidden = this.#cards.size === 0;
    this.counted(this.#cards.size);
    this.asked(new Set(questions.map((one) => one.sessionKey)));
  }

  #question(one) {
    const answer = (method) => async () => { await call(method, { id: one.id, digest: one.digest }); await this.refresh(); };
    return el("article", { class: "card", "data-question": one.id },
      el("h3", {}, `May it run ${one.tool}?`),
      el("pre", { dir: "ltr" }, one.arguments),
      el("p", { class: "muted" }, "asked by ", asker(one.sessionKey), `, until ${clock(one.expiresAt)}`),
      el("div", { class: "row" },
        button("Allow", answer("approvals.approve"), this.failed, "primary"),
        button("Deny", answer("approvals.deny"), this.failed, "danger")));
  }

  #plan(one) {
    return el("article", { class: "card", "data-plan": one.sessionKey },
      el("h3", {}, "A plan awaits your answer: ", runLink(one.sessionKey, one.label || one.sessionKey)),
      words(one.text || "(it wrote nothing)"),
      el("p", { class: "muted" }, `until ${clock(one.expiresAt)}`),
      planAnswer(one.runId, this.failed, this.refresh));
  }
}

const asker = (key) => (isRun(key) ? runLink(key, key) : chatLink(key));

/** Buttons to approve or reject the plan of a run's attempt. */
export function planAnswer(target, failed, done) {
  const reason = el("input", { type: "text", maxlength: 4000, placeholder: "reason, if you reject it", "aria-label": "Reason for rejecting" });
  const reject = async () => {
    if (reason.value.trim() === "") { reason.focus(); throw new Error("say why the plan is rejected: it plans again with that"); }
    await call("plans.reject", { target, reason: reason.value.trim() });
    await done();
  };
  return el("div", { class: "row" },
    button("Approve", async () => { await call("plans.approve", { target }); await done(); }, failed, "primary"),
    reason, button("Reject", reject, failed, "danger"));
}
