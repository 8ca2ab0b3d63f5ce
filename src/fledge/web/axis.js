// Ticks of a time axis: round times of the reader's day, as close together as the room allows.

import { clock, hm } from "./format.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30].map((n) => n * SECOND)
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), [1, 2, 4, 8, 12].map((n) => n * HOUR), [1, 2, 7, 14, 28].map((n) => n * DAY));

/** `{step, first, ticks: [{at, words}]}` from `from` to `to`, which are at most `most` steps apart. */
export function ticks(from, to, most) {
  const step = STEPS.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most / DAY) * DAY;
  const shift = new Date(from).getTimezoneOffset() * MINUTE; // so that a step of hours begins at midnight here
  const first = Math.ceil((from - shift) / step) * step + shift;
  const made = [];
  for (let at = first; at <= to; at += step) made.push({ at, words: words(at, step) });
  return { step, first, ticks: made };
}

function words(at, step) {
  if (step >= DAY) return new Date(at).toLocaleDateString([], { day: "numeric", month: "short" });
  if (step < SECOND) return `${clock(at).slice(3)}.${String(Math.round(at % SECOND)).padStart(3, "0").slice(0, 2)}`;
  return step < MINUTE ? clock(at) : hm(at);
}
