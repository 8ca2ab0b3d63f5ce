// ⌘K: one search over conversations, runs, views and actions.

import { el, fill, glyph, icon, kbd } from "./dom.js";
import * as layers from "./layers.js";
import { chatPath, conversationName, runPath } from "./names.js";
import { VIEWS } from "./side.js";
import { nameOf, standing } from "./standing.js";

const MOST = 9;

/** Show the palette. `actions`: `[words, icon, act]` each, in addition to the views and to the rows of the store. */
export function openPalette(store, actions) {
  const all = [
    ...[...store.conversations.values()].map((conversation) => ({ ico: "chat", words: conversationName(conversation), more: "conversation", act: () => { location.hash = chatPath(conversation.key); } })),
    ...[...store.rows.values()].map((row) => ({ tone: standing(row).tone, words: nameOf(row), more: standing(row).word, act: () => { location.hash = runPath(row.sessionKey); } })),
    ...VIEWS.map(([id, words, ico]) => ({ ico, words: `Go to ${words}`, more: "view", act: () => { location.hash = `#/${id}`; } })),
    ...actions.map(([words, ico, act]) => ({ ico, words, more: "action", act })),
  ];
  let found = [];
  let at = 0;
  const input = el("input", { class: "field big", type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-label": "Search everything", placeholder: "Conversation, run, or something to do …", autocomplete: "off" });
  const list = el("ul", { class: "found", id: "found", role: "listbox", "aria-label": "Found" });
  const choose = (one) => { layers.close(); one.act(); };
  const draw = () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = all.filter((one) => wanted.every((word) => `${one.words} ${one.more}`.toLowerCase().includes(word))).slice(0, MOST);
    at = Math.max(0, Math.min(at, found.length - 1));
    fill(list, found.map((one, n) => el("li", { id: `found-${n}`, role: "option", "aria-selected": String(n === at), on: { click: () => choose(one) } },
      one.tone ? glyph(one.tone) : icon(one.ico), el("span", { class: "grow clip" }, one.words), el("span", { class: "soft nowrap" }, one.more))));
    if (found.length) input.setAttribute("aria-activedescendant", `found-${at}`);
    else { input.removeAttribute("aria-activedescendant"); fill(list, el("li", { role: "option", "aria-selected": "false", "aria-disabled": "true" }, "Nothing is called that.")); }
  };
  input.addEventListener("input", () => { at = 0; draw(); });
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); at += step; draw(); }
    else if (event.key === "Enter" && found[at]) { event.preventDefault(); choose(found[at]); }
  });
  draw();
  layers.openDialog(el("div", { class: "dialog palette", role: "dialog", "aria-modal": "true", "aria-label": "Search everything" },
    el("div", { class: "dialoghead" }, icon("search"), input, kbd("Esc")), list), input);
}
