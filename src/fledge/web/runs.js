// The runs of the folder, as a tree with ages.

import { arrange, el, fill, glyph } from "./dom.js";
import { age } from "./format.js";
import { runPath } from "./names.js";
import { nameOf, standing } from "./standing.js";

export const title = () => "Runs";

export function mount(root, params, { store }) {
  const tree = el("div", { id: "runs-tree" });
  const empty = el("div", { class: "teach", id: "runs-empty" });
  fill(root, el("section", { class: "page runs", tabindex: "0", "aria-label": "Runs" }, el("header", { class: "head" }, el("h1", null, "Runs")), tree, empty));
  const draw = () => {
    const tops = [...store.rows.values()].filter((row) => !store.rows.has(row.requester));
    arrange(tree, tops.length ? [list(store, tops)] : []);
    empty.hidden = tops.length > 0;
    fill(empty, store.isLoaded ? [el("h2", null, "No runs yet"), el("p", { class: "soft" }, "The model starts them when you ask for something big, or you do: ", el("code", null, "/subagents spawn"))] : "loading …");
  };
  draw();
  const ends = [store.subscribe(draw), store.everySecond(draw)];
  return () => ends.forEach((end) => end());
}

const byAge = (one, other) => Number(!one.isActive) - Number(!other.isActive) || other.createdAt - one.createdAt;

const list = (store, rows) => el("ul", { class: "twigs" }, [...rows].sort(byAge).map((row) => {
  const below = store.children(row.sessionKey);
  const took = (row.endedAt ?? Date.now()) - (row.startedAt ?? row.createdAt);
  return el("li", null, el("a", { class: "twig", href: runPath(row.sessionKey), "data-run": row.sessionKey, css: { "--d": row.depth - 1 } },
    glyph(standing(row).tone), el("span", { class: "grow clip name" }, nameOf(row), " ", el("span", { class: "soft" }, standing(row).word)), el("span", { class: "num faint" }, age(took))),
  below.length ? list(store, below) : null);
}));
