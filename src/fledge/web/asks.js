// Cards for everything that waits for a person: tool calls that need approval, and plans. The chat, the page of a run
// and For you show the same ones. An answer is bound to what its card shows: it carries the digest of the call, or the
// run id of the plan, and is refused for any other. A card that was answered stays in place for a while (in For you
// until the view is left), so that nothing moves under the pointer.
//
// Keys (a, d, r, s) act on the focused card alone, and not within 400 ms after it appeared, moved or changed: a key
// that was meant for something else must not answer a question that has just come up.

import { announce, button, el, fail, fill, glyph, icon, plain, refill, write } from "./dom.js";
import { askedFor, callView } from "./calls.js";
import { age, full, until } from "./format.js";
import { call, change, Refusal } from "./gateway.js";
import { bind } from "./keys.js";
import { markdown } from "./markdown.js";
import { sessionLink, shortKey } from "./names.js";
import { present } from "./time.js";

const CALM_MS = 400;
const MOST_WORDS = 4000;
const MOST_PLAN = 100_000;

const byElement = new WeakMap();

/** The handler of a key: calls this action of the card that has the focus, unless that appeared, moved or changed just
 * now. */
const onFocused = (act) => (event) => {
  const card = byElement.get(event.target.closest(".ask"));
  if (card?.isCalm) card.act(act);
};
bind({ a: onFocused("allow"), d: onFocused("deny"), r: onFocused("change"), s: onFocused("later") });

/** The cards of these questions and plans, oldest first. `made` keeps them between two draws. A card stays for `keepsMs`
 * after its answer and shows the outcome. `place`: a card that is set aside in one place stays open in the others. */
export function waitingCards(questions, plans, shared, made, { keepsMs = 2000, place = "chat" } = {}) {
  const waiting = new Map([
    ...questions.map((question) => [`question ${question.id}`, [question, Question]]),
    ...plans.map((plan) => [`plan ${plan.sessionKey} ${plan.runId}`, [plan, Plan]]),
  ]);
  for (const [key, [one, Kind]] of waiting) {
    if (made.has(key)) made.get(key).show(one);
    else made.set(key, new Kind(shared, `aside ${place} ${key}`, one, keepsMs));
  }
  for (const [key, card] of made) {
    if (waiting.has(key)) continue;
    if (card.isFinished) made.delete(key);
    else card.gone();
  }
  return [...made.values()].sort((one, other) => one.one.askedAt - other.one.askedAt).map(({ element }) => element);
}

/** The common part of the cards of questions and plans. A subclass has `sign`, `head`, `name`, `word`, `note`,
 * `body()`, `buttons()`, the actions of the keys (`allow`, `deny`, `change`), and `ended(where)`: how it ended. */
class Ask {
  isBusy = false; // an answer is on its way
  isOver = false; // it was answered, or no longer waits
  isFinished = false; // it is over, and the card has shown that for `keepsMs`
  #isLooking = false; // asking the gateway how it ended
  #isFollowed = false;
  #calmAt = performance.now() + CALM_MS;

  constructor(shared, asideKey, one, keepsMs) {
    this.shared = shared;
    this.store = shared.store;
    this.asideKey = asideKey;
    this.one = one;
    this.keepsMs = keepsMs;
    const since = el("time", { class: "soft nowrap", datetime: new Date(one.askedAt).toISOString(), title: full(one.askedAt) },
      `${this.word} `, el("span", { class: "num", "data-since": one.askedAt }, age(present() - one.askedAt)), " ago");
    this.from = el("p", { class: "task" });
    this.notice = el("p", { class: "notice", role: "alert", hidden: true });
    this.shown = el("div", { class: "askbody" });
    this.more = el("div", { class: "askmore", hidden: true });
    this.foot = el("footer", { class: "cardfoot acts" });
    this.element = el("article", { class: `card ask ${this.sign}`, tabindex: "0", "aria-label": this.name, on: { focusin: () => this.#follow() } },
      el("header", { class: "cardline" }, glyph(this.sign), el("strong", { class: "grow" }, this.head), since),
      this.from, this.notice, this.shown, this.more, this.foot);
    fill(this.shown, this.body());
    this.drawFrom();
    this.drawFoot();
    byElement.set(this.element, this);
  }

  get who() { return this.one.label || "it"; }

  // ---- when a key may act

  /** True if the card has not appeared, moved or changed within the last `CALM_MS`. */
  get isCalm() { return performance.now() >= this.#calmAt; }

  stir() { this.#calmAt = performance.now() + CALM_MS; }

  /** While the focus is in the card, watch whether the card moves. */
  #follow() {
    if (this.#isFollowed) return;
    this.#isFollowed = true;
    let top = null;
    const look = () => {
      if (!this.element.contains(document.activeElement)) { this.#isFollowed = false; return; }
      const now = this.element.getBoundingClientRect().top;
      if (top !== null && Math.abs(now - top) > 1) this.stir();
      top = now;
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }

  /** Carry out the action of a key or a button; nothing while an answer is on its way, or once it is over. */
  act(what) {
    if (this.isOver || this.isBusy) return null;
    if (what === "later") return this.#setAside();
    return this.isAside ? null : this[what]();
  }

  // ---- drawing

  /** Show the question or plan as the store has it now. */
  show(one) {
    this.one = one;
    this.drawFrom();
  }

  /** Draw where it comes from: the conversation, the runs in between, the session that asks. */
  drawFrom() {
    const { lineage } = this.one;
    const keys = [this.one.sessionKey];
    for (let row = this.store.rows.get(keys[0]); row && keys.length <= lineage.length; row = this.store.rows.get(row.requester)) keys.unshift(row.requester);
    const isKnown = keys.length > lineage.length;
    const above = isKnown ? keys.slice(0, -1).map((key) => sessionLink(this.store, key)) : lineage.map((label) => el("span", null, label.startsWith("agent:") ? shortKey(label) : label));
    const links = [...above, sessionLink(this.store, this.one.sessionKey, this.one.label)];
    const words = links.map((link) => link.textContent).join(" > ");
    if (this.from.dataset.words === words) return;
    this.from.dataset.words = words;
    refill(this.from, el("span", { class: "lineage" }, links.map((link, n) => [n > 0 && icon("right", 11), link])));
  }

  drawFoot() {
    this.element.classList.toggle("aside", this.isAside);
    if (this.isAside) {
      fill(this.foot, el("span", { class: "grow" }, "Set aside. It still waits; nothing was answered."), button("Show it", { kind: "small", act: () => this.#takeUp() }));
      return;
    }
    fill(this.foot, this.buttons(), button("Not now", { kind: "ghost", key: "s", act: () => this.act("later") }),
      el("span", { class: "grow" }), el("span", { class: "faint", title: full(this.one.expiresAt) }, this.note));
  }

  /** Show a notice on the card; an empty text hides it. */
  tell(words) {
    write(this.notice, words);
    this.notice.hidden = words === "";
  }

  // ---- not now

  get isAside() { return this.shared.kept.has(this.asideKey); }

  #setAside() {
    this.shared.kept.set(this.asideKey, true);
    this.closeMore();
    this.drawFoot();
    announce("Set aside");
  }

  #takeUp() {
    this.shared.kept.delete(this.asideKey);
    this.stir();
    this.drawFoot();
    this.element.focus();
  }

  // ---- the part below the body: a text field, or the consequences of an answer

  openMore(...parts) {
    fill(this.more, parts);
    this.more.hidden = false;
    this.foot.hidden = true; // one set of buttons at a time
    this.more.querySelector("textarea, input, button")?.focus();
  }

  closeMore() {
    if (this.more.contains(document.activeElement)) this.element.focus();
    this.more.hidden = true;
    this.foot.hidden = false;
    fill(this.more);
  }

  /** Open a text field; `act(words)` sends its text. */
  askWords({ label, send, act, value = "", rows = 3, most = MOST_WORDS }) {
    const words = el("textarea", { class: "field", rows, maxlength: most, "aria-label": label, placeholder: label, required: true });
    words.value = plain(value);
    const go = () => {
      if (words.value.trim()) return act(words.value.trim());
      this.tell("There are no words to send yet.");
      words.focus();
      return null;
    };
    const sends = button(send, { kind: "primary", act: go });
    words.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) { event.preventDefault(); sends.click(); } });
    this.openMore(words, this.moreButtons(sends));
  }

  moreButtons(...buttons) { return el("div", { class: "moreacts" }, buttons, button("Back", { kind: "ghost", act: () => this.closeMore() })); }

  // ---- answering

  /** Send an answer; once the gateway has accepted it, the card says `words`. */
  async answer(method, params, words, tone) {
    if (this.isBusy || this.isOver) return;
    this.isBusy = true;
    this.element.setAttribute("aria-busy", "true");
    this.tell("");
    const waits = () => this.tell("Your answer has not reached the gateway yet. It is sent again until it has.");
    try {
      const done = await change(method, params, { waits });
      this.over(...(done === undefined ? await this.ended("") : [words, tone]));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.tell(`Not taken: ${error.message}.`);
    } finally {
      this.isBusy = false;
      this.element.removeAttribute("aria-busy");
      this.store.readWaiting();
    }
  }

  /** The question or plan no longer waits. Unless this card has answered it, ask the gateway how it ended. */
  gone() {
    if (this.isOver || this.isBusy || this.#isLooking) return;
    this.#isLooking = true;
    this.ended(" elsewhere").then(([words, tone]) => this.over(words, tone)).catch(fail).finally(() => { this.#isLooking = false; });
  }

  /** It no longer waits: show the outcome on the card, in these words. */
  over(words, tone) {
    const hadFocus = this.element.contains(document.activeElement);
    this.isOver = true;
    if (this.keepsMs < Infinity) setTimeout(() => { this.isFinished = true; this.store.changed(); }, this.keepsMs);
    this.shared.kept.delete(this.asideKey);
    this.tell("");
    this.closeMore();
    this.element.classList.remove("aside");
    this.element.classList.add("answered");
    fill(this.foot, el("p", { class: "cardline outcome" }, glyph(tone), el("span", null, words)));
    if (hadFocus) this.element.focus();
    announce(words);
  }
}

/** How a question ended: where, and by whom. */
const ENDED = {
  allowed: (where, by) => [`Allowed${where}${by}.`, "ok"],
  started: (where, by) => [`Allowed${where}${by}.`, "ok"],
  denied: (where, by) => [`Denied${where}${by}.`, "killed"],
  expired: () => ["No answer came in time. It was not run, and the agent gets a refusal.", "timeout"],
  void: () => ["It is not asked any more: the turn went on without it.", "waiting"],
};

/** A tool call that waits for a yes or a no. */
class Question extends Ask {
  get sign() { return "you"; }
  get head() { return askedFor(this.one.tool); }
  get name() { return `${this.who} asks to run ${this.one.tool}`; }
  get word() { return "asked"; }
  get note() { return `until ${until(this.one.expiresAt)} · call ${this.one.digest.slice(0, 12)}`; }
  get bound() { return { id: this.one.id, digest: this.one.digest }; }

  body() {
    const { tool, why, cwd, isSandboxed } = this.one;
    return [callView(tool, this.one.arguments, this.one.change), el("ul", { class: "touches", "aria-label": "What to know before you answer" },
      why && el("li", null, icon("hand", 13), `It asks because ${why}.`),
      cwd && el("li", null, icon("folder", 13), "in ", el("span", { class: "mono" }, cwd)),
      (tool === "exec" || tool === "bash") && el("li", null, icon(isSandboxed ? "check" : "warn", 13), isSandboxed ? "in a sandbox" : "without a sandbox"))];
  }

  buttons() {
    return [
      button("Allow once", { kind: "primary", key: "a", act: () => this.act("allow") }),
      this.one.always !== "" && button("Always …", { act: () => this.act("always") }),
      button("Deny", { key: "d", act: () => this.act("deny") }),
      button("No, because …", { key: "r", act: () => this.act("change") }),
    ];
  }

  /** A question may come back with another call: the card shows that one, says so, and takes no key for a while. */
  show(one) {
    const isOther = one.digest !== this.one.digest;
    super.show(one);
    if (!isOther) return;
    this.stir();
    this.closeMore();
    if (this.element.contains(document.activeElement)) this.element.focus(); // not on a button: the key was meant for the earlier call
    fill(this.shown, this.body());
    this.drawFoot();
    this.tell("The call has changed since it was shown. This is the one that waits now: look at it before you answer.");
  }

  allow() { return this.answer("approvals.approve", this.bound, `Allowed once: ${this.who} goes on.`, "ok"); }
  deny() { return this.answer("approvals.deny", this.bound, `Denied: ${this.who} gets a refusal, and continues without it.`, "killed"); }

  change() {
    this.askWords({ label: "What should it do instead? The model reads this.", send: "Deny with these words",
      act: (words) => this.answer("approvals.deny", { ...this.bound, words }, `Denied, with your words: “${words}”`, "killed") });
  }

  always() {
    const { always, forSubagents, sessionKey, cwd } = this.one;
    const children = el("input", { type: "checkbox" });
    const agent = sessionKey.split(":")[1];
    this.openMore(
      el("p", null, "From now on ", el("b", null, agent), " runs ", el("code", null, always), " in ", el("span", { class: "mono" }, cwd), always.endsWith("…") ? " without a question, with any files of that folder." : " without a question: this command, and no other.", " You can revoke this under For you."),
      forSubagents
        ? el("p", { class: "soft" }, `A subagent asks, so this is for subagents that run as ${agent}, too.`)
        : el("label", { class: "tick" }, children, `subagents that run as ${agent}, too`),
      this.moreButtons(button("Always allow", { kind: "primary", act: () => this.answer("approvals.approve", { ...this.bound, always: true, children: children.checked }, `Allowed: “${always}” runs without a question from now on.`, "ok") })));
  }

  async ended(where) {
    const decided = await call("approvals.list", { decided: true });
    const now = decided.find(({ id }) => id === this.one.id);
    return ENDED[now?.state]?.(where, now.answeredBy ? ` by ${now.answeredBy}` : "") ?? ["It waits no more.", "waiting"];
  }
}

/** A plan that waits for an answer. */
class Plan extends Ask {
  get sign() { return "plan"; }
  get head() { return "A plan for you"; }
  get name() { return `Plan of ${this.who}`; }
  get word() { return "ready"; }
  get note() { return `nothing has been changed yet · until ${until(this.one.expiresAt)}`; }
  body() { return markdown(this.one.text || "(it wrote nothing)"); }

  buttons() {
    return [
      button("Approve", { kind: "primary", key: "a", act: () => this.act("allow") }),
      button("Ask for changes", { key: "r", act: () => this.act("change") }),
      button("Edit …", { act: () => this.act("edit") }),
    ];
  }

  allow() { return this.answer("plans.approve", this.meant(), `Approved: ${this.who} carries it out.`, "ok"); }
  deny() { return this.change(); } // a plan is sent back with a reason

  change() {
    this.askWords({ label: "What should be different?", send: "Send it back",
      act: (reason) => this.answer("plans.reject", { ...this.meant(), reason }, `Sent back: ${this.who} plans again, with your words.`, "waiting") });
  }

  edit() {
    this.askWords({ label: "The plan as it is to be carried out", send: "Approve this plan", value: this.one.text, rows: 12, most: MOST_PLAN,
      act: (text) => this.answer("plans.approve", { ...this.meant(), words: `Carry out this plan. It replaces yours.\n\n${text}` }, `Approved as you wrote it: ${this.who} carries it out.`, "ok") });
  }

  /** The plan that an answer is for: the gateway refuses the answer to any other. */
  meant() { return { target: this.one.sessionKey, run: this.one.runId }; }

  async ended(where) {
    const { timeline } = await call("runs.info", { target: this.one.sessionKey });
    const last = timeline.findLast(({ name }) => ["PlanApproved", "PlanRejected"].includes(name));
    const isSince = last && last.at >= this.one.askedAt;
    if (isSince && last.name === "PlanApproved") return [`Approved${where}.`, "ok"];
    if (isSince) return [`Sent back${where}: it plans again.`, "waiting"];
    return ["It no longer waits: its run was ended, or no answer came in time.", "waiting"];
  }
}
