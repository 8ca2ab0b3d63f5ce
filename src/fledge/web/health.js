// The view Health.

import { el, fill } from "./dom.js";

export const title = () => "Health";

export function mount(root) {
  fill(root, el("section", { class: "page narrow", tabindex: "0", "aria-label": "Health" }, el("header", { class: "head" }, el("h1", null, "Health"))));
  return () => {};
}
