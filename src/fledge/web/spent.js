// The consumption of a run: its tokens, and its cost with a meter of its budget.

import { el } from "./dom.js";
import { usd } from "./format.js";

/** Tokens of a run itself, in and out; null if it has used none. */
export const tokensOf = (row) => (row.tokensIn + row.tokensOut) || null;

/** The cost of a run and everything below it; null if no price is known. */
export const costOfAll = (row) => (row.costUsd === null && row.costBelowUsd === null ? null : (row.costUsd ?? 0) + (row.costBelowUsd ?? 0));

const LEVELS = [[0.9, "bad"], [0.65, "warm"]];

/** The cost of a run, with a meter of its budget if it has one. `isWide`: with the budget in words. `cost`: shown in
 * place of the cost of the run alone. */
export function purse(row, isWide = false, cost = row.costUsd) {
  const budget = row.budget.find((spent) => spent.name === "usd");
  const all = costOfAll(row);
  const told = [all !== cost && `${usd(all)} with everything below it`, budget && `${usd(budget.used)} of its budget of ${usd(budget.most)} used`];
  return el("span", { class: "purse", title: told.filter(Boolean).join("; ") || null }, el("span", { class: "num" }, usd(cost)),
    isWide && budget && el("span", { class: "faint" }, ` of ${usd(budget.most)}`), budget && meter(budget.used / budget.most));
}

function meter(part) {
  const level = LEVELS.find(([from]) => part > from)?.[1] ?? "";
  return el("span", { class: `meter ${level}`.trim(), "aria-hidden": "true" }, el("i", { css: { width: `${Math.round(Math.min(1, part) * 100)}%` } }));
}
