// The panel beside the chat: how many runs are active, cost and tokens, the runs as a live tree, and the latest events.

import { keeper } from "./desk.js";
import { arrange, el, glyph, refill } from "./dom.js";
import { clock, count, full, usd } from "./format.js";
import { ageOf, doing } from "./cards.js";
import { runPath } from "./names.js";
import { nameOf, standing } from "./standing.js";
import { present } from "./time.js";

const MOST_NEWS = 200; // that are kept
const MOST_KNOWN = 3000; // runs whose last row is kept, to compare the next one with it
const MOST_SHOWN = 8;
const JUST_MS = 10_000;
const MOST_TWIGS = 200;
const HOT = ["you", "plan", "stuck", "giveup"];

/** The event that brought a run to its present tone, in words, by tone. */
const NEWS = {
  you: "needs your approval", plan: "has a plan for you", stuck: "is stuck", giveup: "has an undelivered result", spawning: "is being prepared", queued: "is queued", running: "is running",
  waiting: "waits", ending: "is ending", announcing: "hands over its result", ok: "is done", error: "failed", timeout: "ran out of time", killed: "was killed",
};

/** The event behind a changed row: its words, and its time according to the row. Null if it is not worth a line. */
function news(before, row) {
  if (!before) return present() - row.createdAt < JUST_MS ? { words: "was started", at: row.createdAt } : null;
  const { tone } = standing(row);
  const at = row.stuckAt ?? row.now?.sinceAt ?? row.endedAt ?? present();
  if (row.attempt > before.attempt) return { words: `began attempt ${row.attempt}`, at };
  if (row.crashes > before.crashes) return { words: "crashed and goes on", at: row.marks.findLast(({ name }) => name === "crashed")?.at ?? at };
  if (row.delivery?.state !== before.delivery?.state && row.delivery?.state === "delivered") return { words: "was delivered", at: row.delivery.deliveredAt ?? at };
  return tone === standing(before).tone ? null : { words: NEWS[tone], at };
}

/** The last events of runs, the newest first, kept while the page is open. */
function recentNews(shared) {
  if (!shared.kept.has("news")) {
    const found = [];
    const known = new Map(shared.store.rows);
    shared.kept.set("news", found);
    shared.store.listen(({ type, row }) => {
      if (type !== "row") return;
      const told = news(known.get(row.sessionKey), row);
      known.delete(row.sessionKey);
      known.set(row.sessionKey, row); // moves to the end
      if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
      if (told === null) return;
      found.unshift({ row, ...told });
      found.length = Math.min(found.length, MOST_NEWS);
    });
  }
  return shared.kept.get("news");
}

/** Build the panel of a conversation. Answers the element and `draw()`. */
export function panel(key, shared) {
  const { store } = shared;
  const happened = recentNews(shared);
  const totals = el("div", { class: "totals" });
  const tree = el("ul", { class: "twigs", "aria-label": "Runs of this conversation" });
  const ticker = el("ol");
  const latest = el("section", { class: "ticker" }, el("h3", null, "Just now"), ticker);
  const empty = el("p", { class: "soft pad" }, "Subagents of this conversation show up here: what each does, what it waits for, what it costs.");
  const twigs = new Map();
  const keep = keeper();

  const twig = (row) => {
    const below = store.children(row.sessionKey);
    if (!twigs.has(row.sessionKey)) twigs.set(row.sessionKey, { element: el("li"), list: el("ul") });
    const { element, list } = twigs.get(row.sessionKey);
    const shown = keep(row.sessionKey, row, () => el("div", null, line(row)));
    arrange(list, below.map(twig));
    arrange(element, below.length ? [shown, list] : [shown]);
    return element;
  };

  const draw = () => {
    const below = store.below(key);
    const conversation = store.conversations.get(key);
    refill(totals,
      total(String(below.filter((row) => row.isActive).length), "active"),
      total(usd(conversation?.costBelowUsd), "spent"),
      total(count(below.reduce((sum, row) => sum + row.tokensIn + row.tokensOut, 0)), "tokens below"));
    arrange(tree, store.children(key).slice(-MOST_TWIGS).map(twig));
    empty.hidden = below.length > 0;
    const mine = happened.filter(({ row }) => row.root === key).slice(0, MOST_SHOWN);
    latest.hidden = mine.length === 0;
    refill(ticker, mine.map(({ at, row, words }) => el("li", null, el("time", { class: "num faint", title: full(at) }, clock(at)), glyph(standing(row).tone, 12), el("span", { class: "clip" }, `${nameOf(row)} ${words}`))));
  };

  const element = el("aside", { class: "panel", id: "panel", tabindex: "0", "aria-label": "Runs of this conversation" },
    el("header", { class: "panelhead" }, el("h2", { class: "grow" }, "Live tree"), el("a", { class: "btn small ghost", href: "#/runs" }, "All runs")),
    totals, tree, empty, latest);
  return { element, draw };
}

const total = (value, words) => el("div", null, el("b", { class: "num" }, value), el("span", null, words));

function line(row) {
  const { tone, word } = standing(row);
  const now = row.isActive || tone === "giveup" ? doing(row) : null;
  return el("a", { href: runPath(row.sessionKey), class: `twig t-${tone}`, "data-run": row.sessionKey, "data-tone": tone, css: { "--d": row.depth - 1 } },
    glyph(tone, 15), el("span", { class: "grow clip name" }, nameOf(row), el("span", { class: "sr" }, `, ${word}`)), ageOf(row, "num faint"),
    now && el("span", { class: `what ${HOT.includes(tone) ? `c-${tone}` : ""}` }, now));
}
