// Dialogs and menus above the page. A layer keeps the focus inside until it is closed, closes by Escape or a click
// beside it, and gives the focus back to where it was, or to the view if that is gone. One layer is open at a time.

import { byId, button, el, icon } from "./dom.js";

let opened = null; // { before: the element that had the focus, left: called when it closes }

export const isOpen = () => opened !== null;

/** Close the layer that is open, if one is. */
export function close() {
  if (opened === null) return;
  const { before, left } = opened;
  opened = null;
  byId("layer").replaceChildren();
  byId("root").inert = false;
  left?.();
  (before?.isConnected ? before : byId("main"))?.focus();
}

function open(node, first, left) {
  close();
  opened = { before: document.activeElement, left };
  byId("layer").replaceChildren(node);
  byId("root").inert = true;
  first?.focus();
}

/** Show a box as a dialog and focus `first` in it. `left` is called when it closes. */
export function openDialog(box, first, left) {
  const veil = el("div", { class: "veil", on: { pointerdown: (event) => { if (event.target === veil) { event.preventDefault(); close(); } } } }, box);
  veil.addEventListener("keydown", (event) => { if (event.key === "Tab") keepInside(event, box); });
  open(veil, first, left);
}

/** A dialog with a title, a body and buttons. The first element with `data-first` has the focus, else the button
 * Cancel, which only closes it. */
export function dialog(title, ico, body, buttons, left) {
  const box = el("div", { class: "dialog", role: "dialog", "aria-modal": "true", "aria-labelledby": "dialog-title" },
    el("header", { class: "dialoghead" }, icon(ico), el("h2", { class: "grow", id: "dialog-title" }, title)),
    el("div", { class: "dialogbody" }, body),
    el("footer", { class: "dialogfoot" }, button("Cancel", { act: close }), buttons));
  openDialog(box, box.querySelector("[data-first]") ?? box.querySelector(".dialogfoot .btn"), left);
}

/** A menu of buttons below `anchor`: `[words, icon, act]` each. */
export function menu(anchor, label, items) {
  const box = el("div", { class: "menu", role: "menu", "aria-label": label }, items.map(([words, ico, act, kind]) =>
    button(words, { kind, ico, role: "menuitem", act: () => { close(); return act(); } })));
  const cover = el("section", { class: "cover", "aria-label": label, on: { pointerdown: (event) => { if (event.target === cover) close(); } } }, box);
  cover.addEventListener("keydown", (event) => walk(event, box));
  open(cover, null);
  const at = anchor.getBoundingClientRect();
  box.style.setProperty("left", `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`);
  const below = at.bottom + 4;
  box.style.setProperty("top", `${below + box.offsetHeight > innerHeight ? Math.max(8, at.top - box.offsetHeight - 4) : below}px`);
  box.querySelector(".btn")?.focus();
}

const stops = (box) => [...box.querySelectorAll("a[href], button, input, textarea, select, [tabindex='0']")].filter((one) => one.offsetParent !== null);

function keepInside(event, box) {
  const found = stops(box);
  if (!found.length) return;
  const end = event.shiftKey ? found[0] : found.at(-1);
  if (document.activeElement !== end && box.contains(document.activeElement)) return;
  event.preventDefault();
  (event.shiftKey ? found.at(-1) : found[0]).focus();
}

function walk(event, box) {
  const step = { ArrowDown: 1, ArrowUp: -1, Tab: event.shiftKey ? -1 : 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const found = stops(box);
  found.at((found.indexOf(document.activeElement) + step) % found.length).focus();
}
