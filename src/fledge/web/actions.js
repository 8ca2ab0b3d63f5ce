// Actions of a person on runs. Each dialog says beforehand what will happen and what will not.

import { announce, button, el, fill, glyph, write } from "./dom.js";
import { age, plural } from "./format.js";
import { call, change, unique } from "./gateway.js";
import * as layers from "./layers.js";
import { runPath } from "./names.js";
import { nameOf, standing, tookMs } from "./standing.js";

/** Open a dialog. Answers the signal of its end: what it has not got through to the gateway by then is given up. */
function dialog(title, ico, body, buttons) {
  const closed = new AbortController();
  layers.dialog(title, ico, body, buttons, () => closed.abort());
  return closed.signal;
}

/** Ask for a text in a dialog, then call `act(text, signal)`. */
function askForWords(title, ico, explanation, label, words, act) {
  const box = el("textarea", { class: "field", rows: 3, "aria-label": label, placeholder: label, maxlength: 100_000, "data-first": true });
  const error = el("p", { class: "c-error", role: "alert" });
  const go = async () => {
    if (box.value.trim() === "") { write(error, "There are no words to send."); box.focus(); return; }
    await act(box.value.trim(), signal);
    layers.close();
  };
  box.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) { event.preventDefault(); send.click(); } });
  const send = button(words, { kind: "primary", act: go });
  const signal = dialog(title, ico, [el("p", { class: "soft" }, explanation), box, error], send);
}

/** Stop what a run is doing and give it another direction. */
export function steer(row) {
  askForWords(`Steer ${nameOf(row)}`, "steer",
    "It stops what it is doing and begins another attempt with your words. What it has said and done so far is kept. Its children go on.",
    "Where should it go instead?", "Steer", async (message, signal) => {
      await change("runs.steer", { target: row.sessionKey, message }, { signal });
      announce(`${nameOf(row)} was steered`);
    });
}

/** Send a message to a run without stopping it. */
export function send(row) {
  const idempotencyKey = unique();
  askForWords(`Tell ${nameOf(row)}`, "send", "Nothing is stopped.", "Words for this run", "Send", async (message, signal) => {
    const { delivery } = await change("runs.send", { target: row.sessionKey, message, timeoutSeconds: 0, idempotencyKey }, { signal });
    announce(`${nameOf(row)} has your words${delivery ? `: ${delivery}` : ""}`);
  });
}

/** End runs and everything below them; the dialog first lists the runs that end. */
export const kill = (...rows) => confirmEnd(rows.length === 1 ? `Kill ${nameOf(rows[0])}?` : `Kill ${rows.length} runs?`, rows.map((row) => ({ target: row.sessionKey })));

/** End everything below a conversation; the dialog first lists the runs that end. */
export const killBelow = (key) => confirmEnd("Kill everything below this conversation?", [{ target: "all", requester: key }]);

function confirmEnd(title, targets) {
  const list = el("ul", { class: "ends", "aria-label": "What ends" }, el("li", { class: "soft" }, "looking …"));
  const explanation = el("p", null);
  const go = button("Kill", { kind: "danger", ico: "kill", act: async () => {
    for (const target of targets) await change("runs.kill", target, { signal });
    layers.close();
    announce("killed");
  } });
  const signal = dialog(title, "kill", [explanation, list], go);
  const show = async () => {
    const answers = await Promise.all(targets.map((target) => call("runs.ends", target)));
    const rows = [...new Map(answers.flatMap((answer) => answer.rows).map((row) => [row.sessionKey, row])).values()];
    const leftOut = answers.reduce((sum, answer) => sum + answer.leftOut, 0);
    const number = rows.length + leftOut;
    write(explanation, number
      ? `${plural(number, "run ends", "runs end")} within 5 s. Requesters get no notice; transcripts are kept.`
      : "Nothing is at work here.");
    write(go.querySelector("span"), number > 1 ? `Kill ${number} runs` : "Kill");
    fill(list, rows.map((row) => el("li", null, glyph(standing(row).tone, 14), el("span", { class: "grow clip" }, nameOf(row)), el("span", { class: "num soft" }, age(tookMs(row))))),
      leftOut > 0 && el("li", { class: "soft" }, `and ${leftOut} more`));
  };
  show().catch((error) => { write(explanation, error.message); });
}

/** Start a new run with the task of an earlier one, and go to its page. */
export function runAgain(row) {
  const idempotencyKey = unique();
  const signal = dialog(`Run ${nameOf(row)} again?`, "retry", el("p", null, "A new run begins with the same task and the same parameters, for the same requester, which gets its answer. This one stays as it is."),
    button("Run again", { kind: "primary", act: async () => {
      const { childSessionKey } = await change("runs.again", { target: row.sessionKey, idempotencyKey }, { signal });
      layers.close();
      location.hash = runPath(childSessionKey);
    } }));
}

/** Take a finished run off the lists, after asking, and go to the list. */
export function remove(row) {
  const signal = dialog(`Remove ${nameOf(row)}?`, "x", el("p", null, "It is taken off the lists before its time. Its transcript and its result are kept as long as those of an archived run."),
    button("Remove", { kind: "danger", act: async () => {
      await change("runs.remove", { target: row.sessionKey }, { signal });
      layers.close();
      announce(`${nameOf(row)} was removed`);
      location.hash = "#/runs";
    } }));
}

/** Let a run go on that was killed, failed or timed out; the field for a new budget is there if it had one. */
export function resume(row) {
  const box = el("textarea", { class: "field", rows: 3, "aria-label": "Words for it, if you like", placeholder: "Words for it, if you like", maxlength: 100_000, "data-first": true });
  const limits = (row.budget ?? []).map(({ name, most }) => ({ name, box: el("input", { class: "field", type: "number", min: 0, step: "any", "aria-label": `New limit: ${name}`, placeholder: `new limit of ${name}, was ${most}` }) }));
  const signal = dialog(`Let ${nameOf(row)} go on?`, "steer", [el("p", { class: "soft" }, "It begins another attempt with all it had done, and reads what its end left unread. What was killed below it stays killed."), box, ...limits.map((limit) => limit.box)],
    button("Resume", { kind: "primary", act: async () => {
      const given = limits.filter((limit) => limit.box.value.trim());
      const budget = given.length && { budget: Object.fromEntries(given.map((limit) => [limit.name, Number(limit.box.value)])) };
      await change("runs.resume", { target: row.sessionKey, words: box.value.trim(), ...budget }, { signal });
      layers.close();
      announce(`${nameOf(row)} goes on`);
    } }));
}

/** Deliver an undelivered result again. */
export async function deliverAgain(row) {
  await change("undelivered.retry", { target: row.sessionKey });
  announce("it is delivered again");
}

/** Take a result off the undelivered list, after asking. */
export function dismiss(row) {
  const signal = dialog(`Dismiss the result of ${nameOf(row)}?`, "mail", el("p", null, "It is taken off the list of undelivered results and not delivered; its text stays on this page."),
    button("Dismiss", { kind: "danger", act: async () => {
      await change("undelivered.dismiss", { target: row.sessionKey }, { signal });
      layers.close();
      announce("dismissed");
    } }));
}
