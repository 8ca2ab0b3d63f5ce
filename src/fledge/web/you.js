// The view For you.

import { el, fill } from "./dom.js";

export const title = () => "For you";

export function mount(root) {
  fill(root, el("section", { class: "page narrow", tabindex: "0", "aria-label": "For you" }, el("header", { class: "head" }, el("h1", null, "For you"))));
  return () => {};
}
