// Why a run makes no progress, or how it ended, and what a person can do about it: one banner. A run that waits for an
// answer has its card instead.

import { doing } from "./cards.js";
import { el, glyph } from "./dom.js";
import { age, plural, sentence, until } from "./format.js";
import { standing } from "./standing.js";
import { present } from "./time.js";

/** The first sentence and the rest, by the tone of the run or the kind of its activity. `due` may be missing. */
const WORDS = {
  stuck: (row) => [`It has not got through a step for ${age(present() - (row.now?.sinceAt ?? row.stuckAt))}.`, `${row.now?.text ?? ""}. Its requester got one notice; it is never killed for that. Look at the call, steer it, or kill it.`],
  giveup: (row, due) => ["The result is safe, but it was not delivered.", `${sentence(row.delivery?.why)}${due ? ` It is kept until ${until(due.at)}.` : ""}`],
  queue: (row, due) => ["It waits for a slot.", `${sentence(row.now.text)} Its lane is ${row.lane}.${due ? ` If it has none by ${until(due.at)}, it ends.` : ""}`],
  retry: (row) => ["No model could answer.", `${sentence(row.now.text)} It goes on by itself; nothing is lost.`],
  undriven: () => ["No process drives this folder.", "It continues where it was as soon as one does: fledge serve, fledge chat or fledge run."],
  children: (row, due) => ["It waits, and holds no slot.", `It wakes when its children have settled (${row.children - row.unsettled} of ${row.children} have), ${due ? `when it gets a message, or at ${until(due.at)}` : "or when it gets a message"}.`],
  ending: (row) => ["It is ending.", sentence(row.now.text)],
  delivery: (row) => [row.error ? "It failed, and its requester has not read that yet." : "It is done, and its requester has not read the result yet.", `${sentence(row.error)}${row.error ? " " : ""}It is in the requester's inbox, and is read once, whatever crashes.${row.delivery?.why ? ` ${sentence(row.now.text)}` : ""}`],
  error: (row) => ["It failed.", row.error],
  timeout: (row) => ["It ran out of time.", sentence(row.error)],
  killed: () => ["It was killed.", "Its requester got no notice. Its transcript is kept: it can continue from there."],
};

/** The banner of a run; null if there is nothing to say. */
export function why(row, story) {
  const { tone } = standing(row);
  if (tone === "you" || tone === "plan") return null;
  const words = WORDS[tone] ?? WORDS[row.now?.kind];
  if (words) {
    const [first, rest] = words(row, story?.due);
    const below = row.endedAt !== null && row.unsettled > 0 ? ` ${plural(row.unsettled, "run")} below it ${row.unsettled === 1 ? "is" : "are"} still at work.` : "";
    return el("div", { class: `why y-${tone}`, role: "note" }, glyph(tone, 18), el("p", null, el("b", null, first), ` ${rest}${below}`));
  }
  const now = doing(row);
  return now && el("div", { class: `why y-${tone}`, role: "note" }, now);
}

