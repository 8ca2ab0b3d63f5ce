// One run in full.

import { el, fill } from "./dom.js";
import { nameOf } from "./standing.js";

export const title = ([key], { store }) => (store.rows.has(key) ? nameOf(store.rows.get(key)) : "Run");

export function mount(root, [key]) {
  fill(root, el("section", { class: "page runpage", tabindex: "0", "aria-label": "Run" }, el("header", { class: "head" }, el("h1", null, key))));
  return () => {};
}
