// Health of the gateway: lanes with their slots and queues, steps a minute, the store, outcomes of runs, counters, the
// processes that share the store, and recent errors. It is read every few seconds while the view is visible.

import { bars, block, facts, keeper, page } from "./desk.js";
import { arrange, el, fill, glyph, write } from "./dom.js";
import { bytes, clock, full, hm, plural, span } from "./format.js";
import { call, reading } from "./gateway.js";
import { sessionLink } from "./names.js";

const EVERY_S = 5;
const MOST_SLOTS = 24;
const LOW_DISK = 500e6;
const LONG_WAIT_S = 300;
const MINUTES = 30;

const OUTCOMES = { ok: "ok", error: "error", timeout: "timeout", killed: "killed", unknown: "waiting" };
const DELIVERIES = { delivered: "announcing", deferred: "waiting", skipped: "killed", undelivered: "giveup" };
const WRONG = { failed: ["error", "run failed"], undelivered: ["giveup", "delivery given up"], crashed: ["error", "crash"], stuck: ["stuck", "stuck"], model: ["timeout", "no model answers"], turn: ["error", "turn fails"] };
const ENGINES = { alive: "ok", closing: "waiting", dead: "error" };
/** By lane: the setting for the number of its slots. */
const WIDENS = { main: "agents.defaults.maxConcurrent", subagent: "agents.defaults.subagents.maxConcurrent" };

export const title = () => "Health";

export function mount(root, params, { store }) {
  const about = el("span");
  const chip = el("span", { class: "chip big", id: "health-chip" });
  const grid = el("div", { class: "healthgrid" });
  fill(root, page("Health", about, { beside: chip }, grid));
  const keep = keeper();
  let health = null;
  const draw = () => {
    if (!health) return;
    write(about, `fledge ${health.version} · up ${span(health.nowAt - health.startedAt)} · pid ${health.pid} · ${health.store.server || health.store.folder}`);
    const { words, tone } = judged(health);
    chip.className = `chip big c-${tone}`;
    write(chip, words);
    const { lanes, steps, counters, errors } = health;
    const counted = [health.requests, health.rejections, health.subscriptions, health.drivers, counters.interrupts];
    arrange(grid, [
      keep("lanes", lanes, () => laneBlock(lanes)),
      keep("steps", [steps, Math.floor(health.nowAt / 60_000)], () => stepBlock(steps, health.nowAt)),
      keep("store", health.store, () => storeBlock(health.store)),
      keep("outcomes", [counters.outcomes, counters.deliveries], () => outcomeBlock(counters)),
      keep("counted", counted, () => countedBlock(health)),
      health.engines.length > 0 && keep("engines", health.engines, () => engineBlock(health.engines, health.nowAt)),
      keep("errors", [errors, errors.map((one) => sessionLink(store, one.sessionKey).textContent)], () => errorBlock(store, errors)),
    ].filter(Boolean));
  };
  const read = reading(async () => { health = await call("health"); draw(); });
  read();
  let seconds = 0;
  const untick = store.everySecond(() => {
    seconds += 1;
    if (seconds % EVERY_S === 0 && store.connection.state === "connected") read();
  });
  const unlisten = store.listen((event) => { if (event.type === "connected") read(); });
  return () => { untick(); unlisten(); };
}

/** The state of the gateway in words: the first problem that a person could fix, else healthy. */
function judged({ status, store, lanes }) {
  if (status === "closing") return { words: "closing: no new work is begun", tone: "you" };
  if (store.freeBytes < LOW_DISK) return { words: `only ${bytes(store.freeBytes)} free on disk`, tone: "error" };
  const slow = lanes.find((lane) => lane.queued > 0 && lane.oldestWaitS > LONG_WAIT_S);
  if (slow) return { words: `work waits for a slot in ${slow.name}`, tone: "you" };
  return { words: "healthy", tone: "ok" };
}

function laneBlock(lanes) {
  const full = lanes.find((lane) => lane.queued > 0 && WIDENS[lane.name]);
  return wide(2, block("Lanes", el("span", { class: "soft" }, "slots in use, and who waits"),
    el("div", { class: "lanes" }, lanes.map(laneRow)),
    full && el("p", { class: "soft remedy" }, `Who waits goes on as soon as a slot is free. More slots: ${WIDENS[full.name]}.`)));
}

function laneRow({ name, used, width, queued, oldestWaitS }) {
  const slots = Array.from({ length: Math.min(width, MOST_SLOTS) }, (_, n) => el("i", { class: n < used ? "used" : null }));
  const waiting = Array.from({ length: Math.min(queued, MOST_SLOTS / 2) }, () => el("i", { class: "queuedslot" }));
  return el("div", { class: "lanerow" }, el("b", { class: "clip" }, name),
    el("div", { class: "slots", role: "img", "aria-label": `${used} of ${plural(width, "slot")} in use, ${queued} waiting` }, slots, waiting),
    el("span", { class: "num" }, `${used} / ${width}`),
    queued ? el("span", { class: "chip c-you" }, `${queued} waiting, longest ${span(oldestWaitS * 1000)}`) : el("span", { class: "soft" }, "none waiting"));
}

function stepBlock(steps, nowAt) {
  const present = steps.at(-1) ?? 0;
  return block("Steps a minute", el("b", { class: "num", title: "in this minute" }, String(present)),
    bars(steps, `Replies of models in each of the last ${MINUTES} minutes, the newest last: ${steps.join(", ")}`),
    el("p", { class: "axisnote faint" }, el("span", null, hm(nowAt - MINUTES * 60_000)), el("span", null, "now")));
}

const storeBlock = (store) => block("Store",
  el("span", { class: "chip c-ok", title: "half of the newest commits, and 95 of 100, took at most so long" }, `commit ${ms(store.commitMs)}, p95 ${ms(store.commitP95Ms)}`),
  facts([["size", bytes(store.bytes)], ["free on disk", bytes(store.freeBytes)], ["runs", number(store.runs)], ["sessions", number(store.sessions)], ["events", number(store.events)]]));

const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const number = (value) => value.toLocaleString("en");

function outcomeBlock({ outcomes, deliveries }) {
  const byHow = {};
  for (const [name, times] of Object.entries(deliveries)) {
    const how = name.split(":", 1)[0];
    byHow[how] = (byHow[how] ?? 0) + times;
  }
  const all = Object.values(outcomes).reduce((sum, times) => sum + times, 0);
  return block("Outcomes", el("span", { class: "num soft", title: "runs that ended since it started" }, number(all)),
    all > 0 && el("div", { class: "stacked", role: "img", "aria-label": Object.entries(outcomes).map(([name, times]) => `${times} ${name}`).join(", ") },
      Object.entries(outcomes).map(([name, times]) => el("i", { class: `b-${OUTCOMES[name] ?? "waiting"}`, css: { "flex-grow": times } }))),
    counts(outcomes, OUTCOMES), Object.keys(byHow).length > 0 && el("h3", null, "deliveries"), counts(byHow, DELIVERIES),
    all === 0 && el("p", { class: "soft" }, "No run has ended since the gateway started."));
}

/** Counts by name, in the order of `tones`. */
const counts = (times, tones) => el("ul", { class: "counts" }, Object.keys({ ...tones, ...times }).filter((name) => times[name]).map((name) =>
  el("li", null, glyph(tones[name] ?? "waiting", 13), el("span", { class: "grow" }, name), el("span", { class: "num" }, number(times[name])))));

const countedBlock = ({ requests, rejections, subscriptions, drivers, counters }) => block("Counted since the start", null,
  el("ul", { class: "counts" }, [
    ["turns driven now", drivers], ["feeds watched now", subscriptions], ["requests", requests], ["requests turned away", rejections], ["steps called off", counters.interrupts?.steps ?? 0],
  ].map(([name, times]) => el("li", null, el("span", { class: "grow" }, name), el("span", { class: "num" }, number(times))))));

function engineBlock(engines, nowAt) {
  const row = ({ state, name, host, pid, version, drives, sessions, seenAt, isThis }) =>
    el("li", null, glyph(ENGINES[state], 15), el("b", { class: "min" }, `${name || "process"} ${pid}`),
      el("span", { class: "grow min" }, `${host} · fledge ${version} · ${drives ? `drives ${plural(sessions, "session")}` : "runs no agents"}${isThis ? " · this page" : ""}`),
      el("span", { class: state === "dead" ? "c-error" : "soft", title: full(seenAt) }, state === "alive" ? `seen ${span(nowAt - seenAt)} ago` : `${state}, seen ${span(nowAt - seenAt)} ago`));
  return wide(3, block("Processes", el("span", { class: "soft" }, "that share this store"),
    el("ul", { class: "counts", id: "engines" }, engines.map(row))));
}

function errorBlock(store, errors) {
  const row = ({ at, kind, sessionKey, words }) => {
    const [tone, name] = WRONG[kind] ?? ["error", kind];
    return el("li", null, el("time", { class: "num faint", datetime: new Date(at).toISOString(), title: full(at) }, clock(at)), glyph(tone, 15), el("b", null, name),
      el("span", { class: "grow min" }, sessionLink(store, sessionKey), words && ` ${words}`));
  };
  return wide(3, block("What went wrong lately", el("span", { class: "soft" }, "since it started, newest first"),
    el("ul", { class: "errors" }, errors.length ? errors.map(row) : el("li", { class: "soft" }, "Nothing. Failed runs, crashes, models that do not answer and undelivered results are listed here."))));
}

function wide(columns, element) {
  element.classList.add(`span${columns}`);
  return element;
}
