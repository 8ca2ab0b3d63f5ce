// One run in full: how it stands and why, what it was asked and said, its events, how its delivery went; and what a
// person can do about it.

import { arrange, button, el, fill, glyph, oncePerFrame } from "./dom.js";
import { clock, count, full, plural, span, usd } from "./format.js";
import { call, NOT_FOUND, reading, Refusal } from "./gateway.js";
import * as actions from "./actions.js";
import { waitingCards } from "./asks.js";
import { chip, doing } from "./cards.js";
import { Stream } from "./entries.js";
import { markdown } from "./markdown.js";
import { sessionLink } from "./names.js";
import { nameOf, standing } from "./standing.js";
import { transcriptOf } from "./transcript.js";

export const title = ([key], { store }) => (store.rows.has(key) ? nameOf(store.rows.get(key)) : "Run");

export function mount(root, [key], shared) {
  const { store } = shared;
  const transcript = transcriptOf(shared, key);
  const stream = new Stream(transcript, store, ["It was told", "It said"]);
  const head = el("header", { class: "head runhead" });
  const why = el("p", { class: "doing" });
  const cards = el("div");
  const facts = el("div", { class: "block", "aria-label": "Facts" });
  const story = el("div");
  const log = el("ol", { class: "log" });
  fill(root, el("section", { class: "page narrow runpage", id: "view-run", tabindex: "0", "aria-label": "Run" },
    head, why, cards, facts, el("section", { class: "block", "aria-label": "Transcript" }, el("h2", null, "Transcript"), el("div", { role: "log", "aria-label": "Its entries" }, log)), story));
  const made = new Map();
  let told = null;
  let drawn = "";

  const draw = oncePerFrame(() => {
    const row = store.rows.get(key);
    const mine = (one) => one.sessionKey === key;
    arrange(cards, waitingCards(store.questions.filter(mine), store.plans.filter(mine), shared, made));
    why.hidden = !row?.now;
    fill(why, row && doing(row));
    stream.draw(log);
    const is = JSON.stringify([row, told]);
    if (is === drawn) return;
    drawn = is;
    fill(head, row && [glyph(standing(row).tone, 22), el("div", { class: "grow min" }, el("h1", { class: "clip" }, nameOf(row)), el("p", null, chip(row), " ", el("span", { class: "soft" }, [row.agentId, row.model].filter(Boolean).join(" · ")))), controls(row)]);
    if (told) { fill(facts, factsOf(store, told)); fill(story, storyOf(told)); }
  });
  const read = reading(async () => {
    try {
      told = await call("runs.info", { target: key });
    } catch (error) {
      if (!(error instanceof Refusal && error.code === NOT_FOUND)) throw error;
      fill(facts, el("p", { class: "soft" }, "There is no such run (any more). Its conversation, if there is one, is below."));
    }
    draw();
  });
  const ends = [
    store.watch(key), store.subscribe(draw), transcript.subscribe(draw),
    store.listen((event) => { if (event.type === "connected" || (event.type === "row" && event.row.sessionKey === key)) read(); }),
  ];
  read();
  draw();
  return () => ends.forEach((end) => end());
}

function controls(row) {
  if (!row.isActive) return button("Run again", { ico: "retry", act: async () => { await call("runs.again", { target: row.sessionKey }); } });
  return [
    button("Send", { ico: "send", act: () => actions.send(row) }),
    button("Steer", { ico: "steer", act: () => actions.steer(row) }),
    button("Kill", { kind: "danger", ico: "kill", act: () => actions.kill(row) }),
  ];
}

function factsOf(store, { run, stats, models, text, unanswered }) {
  const tokens = `tokens: ${count(stats.tokensIn ?? 0)} in, ${count(stats.tokensOut ?? 0)} out`;
  const cost = stats.costUsd === null || stats.costUsd === undefined ? "unknown" : usd(stats.costUsd);
  const rows = [
    ["asked", markdown(run.task)], ["by", sessionLink(store, run.requester)], ["said", text ? markdown(text) : "nothing yet"], ["delivery", [run.delivery, ...unanswered.map(late)].filter(Boolean).join("; ") || "not yet"], run.error && ["error", run.error],
    ["took", run.startedAt ? span((run.endedAt ?? Date.now()) - run.startedAt) : "not started"], ["attempt", String(run.attempt)],
    ["cost", `${cost}; ${tokens}`], models.length && ["models", models.join(", ")], ["key", el("code", null, run.sessionKey)],
  ];
  return el("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

const late = ({ session, sinceAt, tries }) => `read by ${session}, unanswered since ${clock(sinceAt)}, tried ${tries === 1 ? "once" : `${tries} times`}`;

function storyOf({ timeline, tries }) {
  return [
    part("Timeline", timeline.map((event) => [event.at, `${event.words} → ${event.phase.replaceAll("_", " ")}${event.attempt > 1 ? `, attempt ${event.attempt}` : ""}${event.reason ? ` (${event.reason})` : ""}`])),
    part("Delivery", tries.map(({ at, trace }) => [at, deliveryOf(trace)])),
  ];
}

function deliveryOf(trace) {
  const steps = (trace.tried ?? []).map((step) => `${step.phase} ${step.result}`).join(", ") || "read through a handle";
  const form = trace.form === "summarised" ? ", in one line" : "";
  return `to ${trace.requester} (${trace.route}): ${steps}${form}${trace.why ? ` (${trace.why})` : ""}`;
}

const part = (name, rows) => el("section", { class: "block", "aria-label": name }, el("h2", null, name, " ", el("span", { class: "faint" }, plural(rows.length, "event"))),
  el("ol", { class: "events" }, rows.map(([at, words]) => el("li", null, el("time", { class: "num faint", title: full(at) }, clock(at)), " ", words))));
