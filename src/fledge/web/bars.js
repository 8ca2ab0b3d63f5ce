// A run as bars on a time axis: solid while it works, outlined while it waits for a slot, hatched while it waits for
// something else. Lists, cards and the timeline draw runs by these parts, so that they look alike everywhere.

import { anew, el, fill } from "./dom.js";
import { clock } from "./format.js";
import { standing } from "./standing.js";
import { present } from "./time.js";

/** @typedef {{from: number, to: number, kind: string}} Part `kind` names its looks: `b-…` in base.css */

/** The parts of a run until now, computed from its row. Parts may overlap; the later one is on top.
 * @returns {Part[]} */
export function parts(row, now) {
  const { tone } = standing(row);
  const begun = row.startedAt ?? row.endedAt ?? now;
  const end = row.endedAt ?? now;
  const since = row.now?.sinceAt ?? null;
  const found = [];
  if (begun > row.createdAt) found.push({ from: row.createdAt, to: begun, kind: "queue" });
  if (row.startedAt !== null && (row.phase === "queued" || tone === "waiting")) found.push({ from: begun, to: since ?? begun, kind: "running" }, { from: since ?? begun, to: end, kind: "waiting" });
  else if (row.startedAt !== null) found.push({ from: begun, to: end, kind: tone });
  if ((tone === "you" || tone === "plan") && row.startedAt !== null) found.push({ from: since ?? begun, to: now, kind: "hold" });
  if (tone === "stuck") found.push({ from: since ?? row.stuckAt, to: now, kind: "stuckhold" });
  if (row.endedAt !== null && (tone === "giveup" || tone === "announcing")) found.push({ from: row.endedAt, to: tone === "giveup" ? since ?? now : now, kind: "try" });
  return found.filter((part) => part.to >= part.from);
}

/** Events of a run that are marks on its bar: words and looks (`tick-…`). */
const MARKS = { crashed: ["crashed", "bad"], steered: ["steered", "ink"], resumed: ["went on", "ink"] };
export const marksOf = (row) => row.marks.filter(({ name }) => name in MARKS).map(({ at, name }) => ({ at, words: MARKS[name][0], looks: MARKS[name][1] }));

/** A strip with the parts of a run on an axis; `time(now)` answers the beginning and the end of the axis. The strip is
 * hidden from screen readers: words beside it say the same. `place(now)` of the element draws it as of `now`. */
export function strip(row, time) {
  const element = anew(el("span", { class: "strip", "aria-hidden": "true" }));
  element.place = (now) => {
    const { from, to } = time(now);
    const percent = (at) => ((Math.max(from, Math.min(to, at)) - from) / Math.max(1, to - from)) * 100;
    fill(element, parts(row, now).filter((part) => part.to >= from && part.from <= to).map((part) => {
      const left = percent(part.from);
      return el("span", { class: `bar b-${part.kind}`, css: { left: `${left}%`, width: `max(3px, ${percent(part.to) - left}%)` } });
    }), marksOf(row).filter(({ at }) => at >= from && at <= to).map(({ at, words, looks }) => el("span", { class: `tick tick-${looks}`, title: `${words} ${clock(at)}`, css: { left: `${percent(at)}%` } })));
  };
  element.place(present());
  return element;
}
