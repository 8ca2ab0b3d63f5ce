// Beside the chat: what the conversation has at work and has spent, its runs as a live tree, and what happened just now.

import { arrange, el, fill, glyph } from "./dom.js";
import { clock, count, full, usd } from "./format.js";
import { ageOf, doing } from "./cards.js";
import { runPath } from "./names.js";
import { nameOf, standing } from "./standing.js";

const MOST_EVENTS = 200; // that are kept
const MOST_SHOWN = 8;
const MOST_TWIGS = 200;
const HOT = ["you", "plan", "stuck", "giveup"];

/** Events worth a line: what they say of the run, and the tone. */
const EVENTS = {
  Admitted: ["was started", "spawning"],
  Claimed: ["is at work", "running"],
  Yielded: ["waits for its children", "waiting"],
  PersonAsked: ["asks you", "you"],
  PersonAnswered: ["was answered", "running"],
  Steered: ["was steered", "running"],
  Resumed: ["goes on", "running"],
  KillOrdered: ["was killed", "killed"],
  LeaseLost: ["crashed; it goes on", "error"],
  AttemptEnded: ["finished", "ok"],
  PlanApproved: ["carries out its plan", "running"],
  PlanRejected: ["plans again", "running"],
  RowConsumed: ["was delivered", "announcing"],
};

/** The last events of runs, kept while the page is open. */
export function recentEvents(shared) {
  if (!shared.kept.has("events")) {
    const events = [];
    shared.kept.set("events", events);
    shared.store.listen((event) => {
      if (event.type !== "run" || !EVENTS[event.event]) return;
      events.unshift(event);
      events.length = Math.min(events.length, MOST_EVENTS);
    });
  }
  return shared.kept.get("events");
}

/** Build the panel of a conversation. Answers the element and `draw()`. */
export function panel(key, shared) {
  const { store } = shared;
  const events = recentEvents(shared);
  const totals = el("div", { class: "totals" });
  const tree = el("ul", { class: "twigs", "aria-label": "Runs of this conversation" });
  const ticker = el("ol");
  const news = el("section", { class: "ticker" }, el("h3", null, "Just now"), ticker);
  const empty = el("p", { class: "soft pad" }, "Subagents of this conversation show up here: what each does, what it waits for, what it costs.");
  const twigs = new Map();

  const twig = (row) => {
    const below = store.children(row.sessionKey);
    if (!twigs.has(row.sessionKey)) twigs.set(row.sessionKey, { is: "", element: el("li"), list: el("ul") });
    const kept = twigs.get(row.sessionKey);
    const is = JSON.stringify(row);
    if (kept.is !== is) {
      kept.is = is;
      kept.line = line(row);
    }
    arrange(kept.list, below.map(twig));
    arrange(kept.element, below.length ? [kept.line, kept.list] : [kept.line]);
    return kept.element;
  };

  const draw = () => {
    const below = store.below(key);
    const conversation = store.conversations.get(key);
    fill(totals,
      total(String(below.filter((row) => row.isActive).length), "active"),
      total(usd(conversation?.costBelowUsd), "spent"),
      total(count(below.reduce((sum, row) => sum + row.tokensIn + row.tokensOut, 0)), "tokens below"));
    arrange(tree, store.children(key).slice(-MOST_TWIGS).map(twig));
    empty.hidden = below.length > 0;
    const mine = events.filter((event) => event.requester === key || store.rootOf(event.sessionKey) === key).slice(0, MOST_SHOWN);
    news.hidden = mine.length === 0;
    fill(ticker, mine.map((event) => el("li", null, el("time", { class: "num faint", title: full(event.at) }, clock(event.at)), glyph(toneOf(event), 12), el("span", { class: "clip" }, `${event.label || "a subagent"} ${wordOf(event)}`))));
  };

  const element = el("aside", { class: "panel", id: "panel", tabindex: "0", "aria-label": "Runs of this conversation" },
    el("header", { class: "panelhead" }, el("h2", { class: "grow" }, "Live tree"), el("a", { class: "btn small ghost", href: "#/runs" }, "All runs")),
    totals, tree, empty, news);
  return { element, draw };
}

const total = (value, words) => el("div", null, el("b", { class: "num" }, value), el("span", null, words));

/** Of an ended attempt, how it came out. */
const ended = (event) => (event.event === "AttemptEnded" && ["error", "timeout"].includes(event.status) ? event.endedReason === "killed" ? "killed" : event.status : "");
const toneOf = (event) => ended(event) || EVENTS[event.event][1];
const wordOf = (event) => ({ error: "failed", timeout: "ran out of time", killed: "was killed" })[ended(event)] ?? EVENTS[event.event][0];

function line(row) {
  const { tone, word } = standing(row);
  const now = row.isActive || tone === "giveup" ? doing(row) : null;
  return el("a", { href: runPath(row.sessionKey), class: `twig t-${tone}`, "data-run": row.sessionKey, "data-tone": tone, css: { "--d": row.depth - 1 } },
    glyph(tone, 15), el("span", { class: "grow clip name" }, nameOf(row), el("span", { class: "sr" }, `, ${word}`)), ageOf(row, "num faint"),
    now && el("span", { class: `what ${HOT.includes(tone) ? `c-${tone}` : ""}` }, now));
}
