// The view Agents.

import { el, fill } from "./dom.js";

export const title = () => "Agents";

export function mount(root) {
  fill(root, el("section", { class: "page narrow", tabindex: "0", "aria-label": "Agents" }, el("header", { class: "head" }, el("h1", null, "Agents"))));
  return () => {};
}
