// The view Settings.

import { el, fill } from "./dom.js";

export const title = () => "Settings";

export function mount(root) {
  fill(root, el("section", { class: "page narrow", tabindex: "0", "aria-label": "Settings" }, el("header", { class: "head" }, el("h1", null, "Settings"))));
  return () => {};
}
