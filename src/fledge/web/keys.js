// Keys of the page. Single letters act only while no text field has the focus, no layer is open and Settings has them
// on. A view binds its own keys while it is shown. The help (?) lists the table `HELP`, not the keys that are bound.

import { button, el, kbd } from "./dom.js";
import * as layers from "./layers.js";
import { isOn } from "./theme.js";

const CHORD_MS = 900;

/** The content of the help: sections, each with keys and their effects. */
const HELP = [
  ["Everywhere", [["⌘ K", "search everything"], ["g r", "Runs; g c y u a h s: the other views"], ["c", "new conversation"], ["n", "next that waits for you"], ["?", "these keys"], ["Esc", "close"]]],
  ["What waits for you", [["a", "allow or approve the focused card"], ["d", "deny it"], ["r", "ask for changes to a plan"], ["s", "not now"]]],
  ["Chat", [["/", "commands"], ["Enter", "send"], ["Shift Enter", "new line"], ["Esc", "leave the box"], ["Esc Esc", "stop this turn"], ["t", "show or hide the tree"]]],
  ["Runs", [["j k", "next, previous"], ["← →", "fold, unfold"], ["Enter", "open"], ["x", "select, or no longer"], ["f", "search"], ["1 … 6", "a filter"]]],
  ["Timeline", [["+ −", "zoom"], ["← →", "pan"], ["0", "fit"], ["[ ]", "previous, next span"]]],
];

const bound = new Set(); // tables of { key: act }, the newest last

/** Bind these keys: `{ "t": act, "g r": act }`. Answers a function that unbinds them. */
export function bind(table) {
  bound.add(table);
  return () => bound.delete(table);
}

/** True if this element takes letters. */
const isTyping = (target) => Boolean(target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]"));

/** True if a single letter may act now, for this event. */
const mayAct = (event) => isOn("letters") && !isTyping(event.target) && !event.metaKey && !event.ctrlKey && !event.altKey && !layers.isOpen();

let first = "";
let forget = 0;

/** Listen on the document. ⌘K calls `palette()`; Escape calls `escape(event)` when no layer is open. */
export function listen(palette, escape) {
  document.addEventListener("keydown", (event) => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") { event.preventDefault(); palette(); return; }
    if (event.key === "Escape") {
      if (layers.isOpen()) layers.close();
      else escape(event);
      return;
    }
    if (event.defaultPrevented || !mayAct(event)) return;
    const chord = first ? `${first} ${event.key}` : event.key;
    first = "";
    clearTimeout(forget);
    const act = find(chord);
    if (act) { event.preventDefault(); act(event); } else if (event.key === "g") {
      first = "g";
      forget = setTimeout(() => { first = ""; }, CHORD_MS);
    }
  });
}

function find(chord) {
  for (const table of [...bound].reverse()) if (table[chord]) return table[chord];
  return null;
}

/** Show the keys. */
export function help() {
  const end = button("", { kind: "ghost", ico: "x", label: "Close", act: layers.close });
  layers.openDialog(el("div", { class: "dialog keysbox", role: "dialog", "aria-modal": "true", "aria-label": "Keys" },
    el("header", { class: "dialoghead" }, el("h2", { class: "grow" }, "Keys"), end),
    el("div", { class: "keygrid" }, HELP.map(([where, rows]) => el("section", null, el("h3", null, where),
      el("dl", null, rows.map(([keys, does]) => [el("dt", null, kbd(...keys.split(" ")), el("span", { class: "sr" }, keys)), el("dd", null, does)]))))),
    el("p", { class: "soft pad" }, "Single letters can be turned off in Settings. They never act while you type.")), end);
}
