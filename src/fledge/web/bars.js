// A run as bars on a time axis: solid while it works, outlined while it waits for a slot, hatched while it waits for
// something else. Lists, cards and the timeline draw runs by these parts, so that they look alike everywhere.

import { el } from "./dom.js";
import { standing } from "./standing.js";

/** @typedef {{from: number, to: number, kind: string}} Part `kind` names its looks: `b-…` in base.css */

/** The parts of a run by now, by its row. Parts may lie on each other; the later is on top.
 * @returns {Part[]} */
export function parts(row, now) {
  const { tone } = standing(row);
  const begun = row.startedAt ?? row.endedAt ?? now;
  const end = row.endedAt ?? now;
  const found = [];
  if (begun > row.createdAt) found.push({ from: row.createdAt, to: begun, kind: "queue" });
  if (row.startedAt !== null && end >= begun) found.push({ from: begun, to: end, kind: row.phase === "queued" ? "waiting" : tone });
  const since = row.now?.sinceAt ?? null;
  if ((tone === "you" || tone === "plan") && row.startedAt !== null) found.push({ from: since ?? end, to: now, kind: "hold" });
  if (tone === "stuck") found.push({ from: since ?? row.stuckAt, to: now, kind: "stuckhold" });
  if (row.endedAt !== null && (tone === "giveup" || tone === "announcing")) found.push({ from: row.endedAt, to: tone === "giveup" ? since ?? now : now, kind: "try" });
  return found.filter((part) => part.to >= part.from);
}

/** A strip that shows those parts of a run that touch the time from `from` to `to`. Its words are elsewhere. */
export function strip(row, from, to, now) {
  const percent = (at) => `${((Math.max(from, Math.min(to, at)) - from) / (to - from)) * 100}%`;
  return el("span", { class: "strip", "aria-hidden": "true" }, parts(row, now)
    .filter((part) => part.to >= from && part.from <= to)
    .map((part) => el("span", { class: `bar b-${part.kind}`, css: { left: percent(part.from), width: `max(3px, calc(${percent(part.to)} - ${percent(part.from)}))` } })));
}
