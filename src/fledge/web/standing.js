// How a run stands, in one word, and its tone: the name of its sign and colours (dom.js `glyph`, base.css `c-…`). Pure.
// That a run needs a person or is stuck comes before all else.

import { short } from "./format.js";
import { present } from "./time.js";

const WORDS = {
  spawning: ["starting", "spawning"],
  queued: ["queued", "queued"],
  running: ["running", "running"],
  waiting: ["waiting", "waiting"],
  ending: ["ending", "ending"],
  announcing: ["delivering", "announcing"],
  announce_deferred: ["delivering", "announcing"],
  awaiting_approval: ["plan for you", "plan"],
  completed_giveup: ["undelivered", "giveup"],
};
const OUTCOMES = {
  ok: ["done", "ok"],
  error: ["failed", "error"],
  timeout: ["timed out", "timeout"],
  killed: ["killed", "killed"],
  unknown: ["unknown", "error"],
};

/** A run's outcome for people: on the wire a kill is an error that ended as killed. */
export const outcome = (row) => (row.endedReason === "killed" ? "killed" : row.status);

/** Orders rows of runs by creation; several may have been created at the same time. */
export const oldestFirst = (one, other) => one.createdAt - other.createdAt || one.ordinal - other.ordinal;

/** `{word, tone}` of a run's row. */
export function standing(row) {
  const [word, tone] = judged(row);
  return { word, tone };
}

function judged(row) {
  if (row.phase === "awaiting_approval" || row.phase === "completed_giveup") return WORDS[row.phase];
  if (row.now?.kind === "you") return ["needs approval", "you"];
  if (row.stuckAt !== null) return ["stuck", "stuck"];
  if (row.endedAt === null || row.phase.startsWith("announc")) return WORDS[row.phase] ?? [row.phase.replaceAll("_", " "), "waiting"];
  return OUTCOMES[outcome(row)] ?? [outcome(row), "waiting"];
}

/** True while the result of a run is kept but undelivered: it can be delivered again or dismissed. */
export const isUndelivered = (row) => row.phase === "completed_giveup";

/** How long a run took, or has taken so far. */
export const tookMs = (row, now = present()) => (row.endedAt ?? now) - (row.startedAt ?? row.createdAt);

/** The name of a run for people: its label, else the beginning of its task, else its session key. */
export const nameOf = (row) => row.label || short(row.task, 60) || row.sessionKey;
