// One run in full: its place in the tree, its state and the reason, its controls, timeline, transcript, events and
// result, and the delivery of the result. The row comes with the feed; the rest is read again when the row has changed.

import * as actions from "./actions.js";
import { waitingCards } from "./asks.js";
import { ageOf, chip } from "./cards.js";
import { anew, arrange, button, el, fill, glyph, icon, oncePerFrame, refill, write } from "./dom.js";
import { age, clock, count, full, plural, usd } from "./format.js";
import { call, NOT_FOUND, reading, Refusal } from "./gateway.js";
import { Stream } from "./entries.js";
import { code, markdown } from "./markdown.js";
import { sessionLink } from "./names.js";
import { delivery, facts, files, limits } from "./runaside.js";
import { costOfAll, purse, tokensOf } from "./spent.js";
import { isUndelivered, nameOf, standing, tookMs } from "./standing.js";
import { Timeline } from "./timeline.js";
import { transcriptOf } from "./transcript.js";
import { why } from "./why.js";

const CALM_MS = 700; // between two readings of a run at work
const MOST_RAW = 60_000; // characters of JSON
const TABS = [["transcript", "Transcript"], ["events", "Events"], ["result", "Result"], ["raw", "Raw JSON"]];
const TONES = { LeaseLost: "bad", AttemptFaltered: "bad", KillOrdered: "bad", CleanupFailed: "bad", RequesterLost: "bad", Withdrawn: "bad", Claimed: "ok", Resumed: "ok", PlanApproved: "ok", RowConsumed: "ok", PersonAsked: "you", Steered: "you", PlanRejected: "you" };

export const title = ([key], { store, kept }) => {
  const row = store.rows.get(key) ?? kept.get(`run ${key}`);
  return row ? nameOf(row) : "Run";
};

export function mount(root, [key], shared) {
  const page = new RunPage(root, key, shared);
  return () => page.end();
}

class RunPage {
  #story = null;
  #spans = null;
  #cards = new Map();
  #tab = null;
  #shown = new Map(); // by part of the page: a value that stands for its content
  #readAt = 0;
  #timer = 0;

  constructor(root, key, shared) {
    this.key = key;
    this.shared = shared;
    this.store = shared.store;
    this.transcript = transcriptOf(shared, key);
    this.stream = new Stream(this.transcript, this.store, ["Requester", "It"]);
    this.read = reading(() => this.#read());
    this.timeline = new Timeline({ childRow: (child) => this.store.rows.get(child), shows: (span) => this.#showEntry(span.seq) });
    this.#build(root);
    const draw = oncePerFrame(() => this.#draw());
    this.ends = [
      this.store.watch(key), this.store.subscribe(draw), this.transcript.subscribe(draw), this.store.listen((event) => this.#hear(event)),
      this.store.everySecond(() => { if (this.row?.endedAt === null) this.timeline.tick(); }), () => this.timeline.end(), () => clearTimeout(this.#timer),
    ];
    this.draw = draw;
    this.transcript.refresh();
    this.read();
    this.#draw();
  }

  end() {
    this.ends.forEach((end) => end());
    this.shared.kept.delete(`run ${this.key}`);
  }

  get row() { return this.store.rows.get(this.key) ?? this.shared.kept.get(`run ${this.key}`) ?? null; }

  #build(root) {
    this.crumbs = el("nav", { class: "crumbs", "aria-label": "Where this run is" });
    this.head = el("header", { class: "runhead" });
    this.why = el("div", { class: "whybox", "aria-live": "polite" });
    this.waiting = el("section", { class: "asks", "aria-label": "Waiting for you" });
    this.stats = el("dl", { class: "stats" });
    this.tablist = el("div", { class: "tablist", role: "tablist", "aria-label": "About this run" });
    this.panel = el("div", { class: "tabpanel", role: "tabpanel", id: "run-panel", tabindex: "0" });
    this.log = anew(el("ol", { class: "log inrun", "aria-label": "What was said" }));
    this.older = anew(button("Show earlier", { kind: "small", hidden: true, act: () => this.transcript.older() }));
    this.aside = el("div", { class: "col" });
    this.body = el("div", { hidden: true }, this.crumbs, this.head, this.why, this.waiting, this.stats, this.timeline.element,
      el("div", { class: "cols" }, el("section", { class: "block" }, this.tablist, this.panel), this.aside));
    this.none = el("div", { class: "teach", id: "run-none" }, el("p", { class: "soft" }, "loading …"));
    this.tabs = TABS.map(([id, words], n) => {
      const number = el("span", { class: "num faint" });
      const tab = el("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "run-panel", on: { click: () => this.#choose(id), keydown: (event) => this.#tabKey(event, n) } }, words, number);
      return { id, tab, number };
    });
    fill(this.tablist, this.tabs.map(({ tab }) => tab));
    fill(root, el("section", { class: "page runpage", tabindex: "0", "aria-label": "Run", id: "view-run" }, this.none, this.body));
  }

  // ---- reading

  #hear({ type, row }) {
    if (type === "connected" || type === "lost") this.read();
    if (type !== "row" || (row.sessionKey !== this.key && row.requester !== this.key)) return;
    if (row.sessionKey === this.key) this.shared.kept.set(`run ${this.key}`, row);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), Math.max(0, this.#readAt + CALM_MS - performance.now()));
  }

  async #read() {
    try {
      const [story, spans] = await Promise.all([call("runs.info", { target: this.key }), call("runs.spans", { target: this.key })]);
      this.#story = story;
      this.#spans = spans;
      if (!this.row) this.shared.kept.set(`run ${this.key}`, await call("runs.row", { target: this.key }));
    } catch (error) {
      if (!(error instanceof Refusal && error.code === NOT_FOUND)) throw error;
      this.#story = null;
      refill(this.none, el("h2", null, "There is no such run"), el("p", { class: "soft" }, "It may be of another folder, or its time to be kept is over."), el("a", { class: "btn", href: "#/runs" }, "All runs"));
    }
    this.#readAt = performance.now();
    this.shared.retitle();
    this.draw();
  }

  // ---- drawing

  /** Fill a part of the page only if `is`, which stands for its content, has changed. */
  #show(part, is, make) {
    if (this.#shown.get(part) === is) return;
    this.#shown.set(part, is);
    refill(part, make());
  }

  #draw() {
    const row = this.row;
    const story = this.#story;
    const isKnown = row !== null && story !== null;
    this.body.hidden = !isKnown;
    this.none.hidden = isKnown;
    if (!isKnown) return;
    const is = JSON.stringify(row);
    this.#show(this.crumbs, JSON.stringify(this.#lineage(row).map((one) => [one, this.store.rows.get(one)?.label])), () => this.#crumbs(row));
    this.#show(this.head, JSON.stringify([standing(row), row.attempt, row.isActive, row.model, row.endedAt]), () => this.#headParts(row));
    this.#show(this.why, `${is} ${story.due?.at}`, () => why(row, story));
    this.#drawWaiting();
    this.#show(this.stats, `${is} ${this.#spans.spans.length}`, () => this.#statParts(row));
    if (this.#shown.get(this.timeline) !== this.#spans) { this.#shown.set(this.timeline, this.#spans); this.timeline.set(this.#spans); }
    this.#show(this.aside, `${is} ${story.nowAt}`, () => [delivery(row, story, this.store), limits(row, story), facts(row, story, this.store)]);
    this.#tab ??= row.endedAt !== null && story.text ? "result" : "transcript";
    this.#drawTabs(row, story);
  }

  #lineage(row) {
    const path = [];
    for (let at = row.requester; at && path.length < 20; at = this.store.rows.get(at)?.requester) path.unshift(at);
    if (path[0] !== row.root) path.unshift(row.root);
    return path;
  }

  #crumbs(row) {
    return [el("a", { href: "#/runs" }, "Runs"), this.#lineage(row).map((key) => [icon("right", 11), sessionLink(this.store, key)])];
  }

  #headParts(row) {
    const { tone } = standing(row);
    return [glyph(tone, 26), el("div", { class: "grow min" }, el("h1", null, nameOf(row)), el("p", { class: "soft" }, chip(row), " ", [row.agentId, row.model].filter(Boolean).join(" · "), el("span", { class: "faint" }, ` · #${row.number} of its requester`))),
      el("div", { class: "acts" }, controls(row))];
  }

  #drawWaiting() {
    const mine = (one) => one.sessionKey === this.key;
    arrange(this.waiting, waitingCards(this.store.questions.filter(mine), this.store.plans.filter(mine), this.shared, this.#cards));
  }

  #statParts(row) {
    const stat = (name, value, more) => el("div", { class: "stat" }, el("dt", { class: "soft" }, name), el("dd", { class: "num" }, value), el("dd", { class: "faint" }, more));
    const calls = this.#spans.spans.filter((span) => span.lane === "tools");
    const failed = calls.filter((span) => span.status === "error" || span.status === "unknown").length;
    const settled = row.children - row.unsettled;
    const all = costOfAll(row);
    return [
      stat(row.endedAt === null ? "at it for" : "took", row.endedAt === null ? ageOf(row, "") : age(tookMs(row)), row.startedAt === null ? "not begun" : `since ${clock(row.startedAt)}`),
      stat("attempt", String(row.attempt), row.crashes ? `${plural(row.crashes, "crash", "crashes")}, and went on` : row.attempt > 1 ? "steered or resumed" : "the first"),
      stat("tokens", count(tokensOf(row)), `${count(row.tokensIn)} in, ${count(row.tokensOut)} out${row.tokensCached ? `, ${count(row.tokensCached)} cached` : ""}`),
      stat("cost", purse(row, true), all === row.costUsd ? all === null ? "no price is known" : "by itself" : `${usd(all)} with everything below`),
      stat("calls", `${calls.length}${this.#spans.leftOut ? "+" : ""}`, failed ? `${failed} failed` : calls.length ? "none failed" : "of tools"),
      stat("children", row.children ? `${settled} of ${row.children}` : "none", row.children ? "settled" : "it started none"),
    ];
  }

  // ---- tabs

  #choose(id, isFocused = false) {
    this.#tab = id;
    this.#draw();
    if (isFocused) this.tabs.find((one) => one.id === id).tab.focus();
  }

  #tabKey(event, n) {
    const to = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#choose(TABS[(to + TABS.length) % TABS.length][0], true);
  }

  #drawTabs(row, story) {
    const numbers = { transcript: this.transcript.hasOlder ? `${this.transcript.entries.length}+` : this.transcript.entries.length, events: story.timeline.length };
    for (const { id, tab, number } of this.tabs) {
      tab.setAttribute("aria-selected", String(id === this.#tab));
      tab.tabIndex = id === this.#tab ? 0 : -1;
      write(number, numbers[id] ? ` ${numbers[id]}` : "");
    }
    this.panel.setAttribute("aria-labelledby", `tab-${this.#tab}`);
    switch (this.#tab) {
      case "transcript":
        this.#show(this.panel, "transcript", () => [this.older, this.log]);
        if (!this.transcript.isReadBack) this.transcript.forgetOldest();
        this.older.hidden = !this.transcript.hasOlder;
        this.stream.draw(this.log);
        break;
      case "events": this.#show(this.panel, `events ${story.timeline.length} ${story.tries.length}`, () => events(story)); break;
      case "result": this.#show(this.panel, `result ${story.text.length} ${row.endedAt} ${story.artifacts.length}`, () => result(row, story)); break;
      default: this.#show(this.panel, `raw ${JSON.stringify(row)} ${story.nowAt}`, () => raw(row, story));
    }
  }

  /** Show the entry of a call in the transcript. */
  async #showEntry(seq) {
    this.#choose("transcript");
    for (let pages = 0; pages < 50 && !this.transcript.entry(seq) && this.transcript.hasOlder; pages += 1) await this.transcript.older();
    this.#draw();
    const found = this.log.querySelector(`[data-seq="${Number(seq)}"]`);
    found?.scrollIntoView({ block: "center" });
    found?.classList.add("found-entry");
    setTimeout(() => found?.classList.remove("found-entry"), 2000);
  }
}

const RESUMABLE = new Set(["killed", "error", "timeout"]);

/** The buttons for the actions that are possible in the present state of a run. */
function controls(row) {
  const again = button("Run again", { ico: "retry", act: () => actions.runAgain(row) });
  const kill = button("Kill", { kind: "danger", ico: "kill", act: () => actions.kill(row) });
  const resume = RESUMABLE.has(row.endedReason) && button("Resume", { ico: "steer", act: () => actions.resume(row) });
  if (isUndelivered(row)) return [button("Deliver again", { kind: "primary", ico: "retry", act: () => actions.deliverAgain(row) }), button("Dismiss", { ico: "x", act: () => actions.dismiss(row) }), resume].filter(Boolean);
  if (row.planId) return [kill];
  if (row.endedAt === null) return [button("Send", { ico: "send", act: () => actions.send(row) }), button("Steer", { ico: "steer", act: () => actions.steer(row) }), kill];
  const remove = button("Remove", { ico: "x", act: () => actions.remove(row) });
  return [resume, again, row.phase === "completed" && !row.isActive && remove, row.isActive && kill].filter(Boolean);
}

/** Everything that happened to a run, with its reason. */
function events(story) {
  const happened = story.timeline.map(({ at, name, phase, words, reason }) => ({ at, tone: TONES[name], parts: [el("p", null, el("b", null, words || name), icon("right", 11), el("span", { class: "chip" }, phase.replaceAll("_", " "))), reason && el("p", { class: "soft" }, reason)] }));
  const tries = story.tries.map(({ at, trace }) => ({ at, tone: trace.path ? "send" : "bad", parts: [el("p", null, el("b", null, trace.path ? "Delivered" : "Not delivered")), el("p", { class: "soft" }, `to ${trace.requester} (${trace.route}): ${trace.tried.map((one) => [one.phase, one.result, one.detail].filter(Boolean).join(" ")).join(", ") || "read by handle"}${trace.why ? ` · ${trace.why}` : ""}`)] }));
  return el("ol", { class: "events", "aria-label": "What happened" }, [...happened, ...tries].sort((one, other) => one.at - other.at).map(({ at, tone, parts }) => el("li", { class: tone && `e-${tone}` },
    el("time", { class: "num", datetime: new Date(at).toISOString(), title: full(at) }, clock(at)), el("span", { class: "evdot", "aria-hidden": "true" }), el("div", { class: "min" }, parts))));
}

function result(row, story) {
  if (story.text) return [markdown(story.text), files(row, story)];
  const words = row.endedAt === null ? "Not yet." : row.error ? "It said nothing before it ended." : "It has no words; see the transcript.";
  return [el("div", { class: "hint" }, el("p", null, el("b", null, words)), el("p", { class: "soft" }, "The words of a run are frozen when it ends, and are in its requester's inbox in the same commit.")), files(row, story)];
}

function raw(row, story) {
  const text = JSON.stringify({ row, ...story }, null, 2);
  return code(text.length > MOST_RAW ? `${text.slice(0, MOST_RAW)}\n… cut; fledge info ${row.runId} --json has all of it` : text, "json");
}
