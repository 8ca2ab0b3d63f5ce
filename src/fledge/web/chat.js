// A conversation.

import { el, fill } from "./dom.js";
import { shortKey } from "./names.js";

export const title = ([key]) => shortKey(key);

export function mount(root, [key]) {
  fill(root, el("section", { class: "page", tabindex: "0", "aria-label": "Chat" }, el("header", { class: "head" }, el("h1", null, shortKey(key)))));
  return () => {};
}
