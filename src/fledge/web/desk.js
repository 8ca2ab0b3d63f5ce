// Shared parts of the quieter views (For you, Undelivered, Agents, Health, Settings): a page with a head, facts, small
// bars, empty states, and elements that change only when their values have changed.

import { copyButton, el, renew, svg } from "./dom.js";

/** A view's page: its name, a line about it, an element beside these two, and its parts. */
export const page = (name, about, { kind = "", beside = null } = {}, ...parts) => el("section", { class: `page ${kind}`.trim(), tabindex: "0", "aria-label": name },
  el("header", { class: "head" }, el("div", { class: "grow min" }, el("h1", null, name), el("p", { class: "soft" }, about)), beside), parts);

/** A part of a page with a name. */
export const block = (name, beside, ...parts) => el("section", { class: "block", "aria-label": name },
  el("header", { class: "blockhead" }, el("h2", { class: "grow" }, name), beside), parts);

/** Names and their values. */
export const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, value]) => [el("dt", null, name), el("dd", { class: "num" }, value)]));

/** A command to copy. */
export const command = (line) => el("div", { class: "cmd" }, el("code", null, line), copyButton(line, "Copy the command"));

/** Three steps, each with a line about it. */
export const steps = (pairs) => el("ol", { class: "how" }, pairs.map(([step, more], n) =>
  el("li", null, el("span", { class: "n", "aria-hidden": "true" }, String(n + 1)), el("div", null, el("b", null, step), el("span", { class: "soft" }, more)))));

/** Numbers as bars, the newest last; `label` says them in words. */
export function bars(values, label, { width = 320, height = 64 } = {}) {
  const top = Math.max(...values, 1);
  const step = width / values.length;
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, values.map((value, n) => {
    const tall = Math.max(1.5, (value / top) * height);
    return svg("rect", { x: n * step + 0.5, y: height - tall, width: Math.max(1, step - 2), height: tall, rx: 1 });
  }));
}

/** Keeps elements by key. Answers `keep(key, shown, make)`, which answers the element of a key. `make()` makes it; when
 * the values `shown` have changed, it becomes like a newly made one (`renew`). */
export function keeper() {
  const made = new Map();
  return (key, shown, make) => {
    const is = JSON.stringify(shown);
    const old = made.get(key);
    if (old?.is !== is) made.set(key, { is, element: old ? renew(old.element, make()) : make() });
    return made.get(key).element;
  };
}
