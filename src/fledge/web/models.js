// Choosing the model of a conversation: the models that can be used now, each with the reason and its price, or any
// other name.

import { button, el, fail, fill, icon, refill } from "./dom.js";
import { count, usd } from "./format.js";
import { call } from "./gateway.js";
import * as layers from "./layers.js";

const MOST = 200; // that are listed at once; typing narrows the list

/** Ask for a model. `current` is in use; `chosen(name)` is called with the choice; empty means as configured. */
export function chooseModel(current, chosen) {
  const search = el("input", { type: "search", class: "field", placeholder: "Search, or provider/name", "aria-label": "Search models, or provider/name", maxlength: 256, autocomplete: "off", "data-first": true });
  const list = el("ul", { class: "choices", "aria-label": "Models" }, el("li", { class: "soft" }, "looking …"));
  let models = null;
  const take = async (name) => { await chosen(name); layers.close(); };
  const draw = () => {
    const wanted = search.value.trim();
    const found = (models ?? []).filter((model) => model.name.toLowerCase().includes(wanted.toLowerCase())).slice(0, MOST);
    const isOther = wanted.includes("/") && !found.some((model) => model.name === wanted);
    refill(list, !wanted && el("li", null, button("As configured", { kind: "ghost wide", ico: "gear", act: () => take("") })),
      found.map((model) => el("li", null, choice(model, model.name === current || model.name.endsWith(`/${current}`), take))),
      isOther && el("li", null, button(`Use ${wanted}`, { kind: "ghost wide", ico: "brain", act: () => take(wanted) })),
      models === null ? el("li", { class: "soft" }, "looking …") : !found.length && !isOther && el("li", { class: "soft" }, "No model that can be used is called that. A full name, provider/name, is taken as it is."));
  };
  search.addEventListener("input", draw);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (search.value.trim()) list.querySelector("button")?.click(); // the first that is found
  });
  layers.dialog("Model of this conversation", "brain", [el("p", { class: "soft" }, "It answers from the next turn on. Subagents keep theirs."), search, list], null);
  call("models.list").then((found) => { models = found; draw(); }).catch((error) => { models = []; draw(); fail(error); });
}

function choice({ name, because, window, inputUsd, outputUsd }, isCurrent, take) {
  const known = [inputUsd !== null && `${usd(inputUsd)} in, ${usd(outputUsd)} out a million`, window !== null && `${count(window)} window`].filter(Boolean).join(" · ");
  const made = button("", { kind: "ghost wide model", title: because, "aria-current": isCurrent ? "true" : null, act: () => take(name) });
  fill(made, icon(isCurrent ? "check" : "brain"), el("span", { class: "grow min" }, el("b", null, name), el("span", { class: "soft" }, known || because)));
  return made;
}
