// How a tool call looks to the person who answers it: a command as a shell block, a change of a file as a diff,
// anything else as a table of its arguments; the raw text behind a toggle. Nothing is left out: a person answers for
// the whole call. Arguments that the page cannot parse are shown as they are.

import { button, el } from "./dom.js";
import { bytes } from "./format.js";
import { code } from "./markdown.js";

const MOST_SHOWN = 20_000; // characters of a block, until the person asks for all of them

/** The arguments of a call as an object; null if they are anything else. */
function argumentsOf(text) {
  try {
    const given = JSON.parse(text);
    return given !== null && typeof given === "object" && !Array.isArray(given) ? given : null;
  } catch {
    return null;
  }
}

/** The question to the person about a call of this tool. */
export function askedFor(tool) {
  return tool === "exec" || tool === "bash" ? "May it run this command?" : `May it run ${tool}?`;
}

/** The elements that show a call: `tool` and its arguments, as the model wrote them; `change`: the change of a file that
 * it would make, as the gateway compared it. */
export function callView(tool, text, change = null) {
  const given = argumentsOf(text);
  if (given === null) return [block(text, ""), change && changeView(change.path, change)];
  const [shown, named] = byTool(tool, given, change);
  const others = Object.entries(given).filter(([name]) => !named.includes(name));
  return [shown, others.length > 0 && table(others), raw(text)];
}

/** The main part of a call, drawn as its tool needs it (null: none), and the names of the arguments that it shows. */
function byTool(tool, given, change) {
  const isText = (...names) => names.every((name) => typeof given[name] === "string");
  if ((tool === "exec" || tool === "bash") && isText("command")) return [block(given.command, "bash"), ["command"]];
  if (tool === "write" && isText("path", "content")) return [changeView(given.path, change, "", given.content), ["path", "content"]];
  if (tool === "edit" && isText("path", "old", "new")) return [changeView(given.path, change, given.old, given.new), ["path", "old", "new"]];
  return [null, []];
}

const SIGNS = { kept: " ", removed: "-", added: "+" };
const signed = ({ mark, text }) => mark === "gap" ? `@@ ${text} @@` : SIGNS[mark] + text;

/** A change of a file: compared with the file as it was, where its lines are known; else, or where they hide a part of
 * the call, the words of the call itself (`before`, `after`). */
export const changeView = (path, change, before = "", after = "") => el("figure", { class: "change" },
  el("figcaption", { class: "mono" }, path), change?.note && el("p", { class: "soft" }, change.note),
  change?.lines && block(change.lines.map(signed).join("\n"), "diff"),
  (!change?.lines || change.hides) && (before || after) && block(diff(before, after), "diff"));

/** The removed (-) and added (+) lines, between the lines that both texts begin and end with. Where one text ends with
 * a line break and the other does not, a line says so. */
export function diff(before, after) {
  const isUneven = before !== "" && after !== "" && before.endsWith("\n") !== after.endsWith("\n");
  const linesOf = (text) => {
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    else if (isUneven) lines.push("(no line break at the end)");
    return lines;
  };
  const old = linesOf(before);
  const fresh = linesOf(after);
  const most = Math.min(old.length, fresh.length);
  let first = 0;
  while (first < most && old[first] === fresh[first]) first += 1;
  let last = 0;
  while (last < most - first && old.at(-1 - last) === fresh.at(-1 - last)) last += 1;
  const marked = (lines, mark) => lines.map((line) => mark + line);
  return [
    ...marked(old.slice(0, first), " "),
    ...marked(old.slice(first, old.length - last), "-"), ...marked(fresh.slice(first, fresh.length - last), "+"),
    ...marked(old.slice(old.length - last), " "),
  ].join("\n");
}

/** A block of code; of a long one the beginning, with a button for the rest. */
function block(text, language) {
  if (text.length <= MOST_SHOWN) return code(text, language);
  const box = el("div", { class: "cut" }, code(text.slice(0, MOST_SHOWN), language));
  box.append(button(`Only the beginning is shown. Show all (${bytes(text.length)})`, { kind: "link", act: () => box.replaceChildren(code(text, language)) }));
  return box;
}

const table = (entries) => el("dl", { class: "arguments" }, entries.map(([name, value]) =>
  [el("dt", null, name), el("dd", { dir: "auto" }, typeof value === "string" ? value : JSON.stringify(value, null, 2))]));

function raw(text) {
  const made = el("details", { class: "raw" }, el("summary", null, "Raw"));
  made.addEventListener("toggle", () => { if (made.open && made.childElementCount === 1) made.append(block(text, "json")); });
  return made;
}
