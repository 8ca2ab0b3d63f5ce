// Parts of a run's page: the delivery of its result, its limits, its files, and facts to copy.

import { fileButton } from "./cards.js";
import { block } from "./desk.js";
import { copyButton, el, icon } from "./dom.js";
import { clock, count, full, plural, span, until, usd } from "./format.js";
import { sessionLink } from "./names.js";
import { isUndelivered } from "./standing.js";

// ---- delivery

const SIGNS = { done: "check", bad: "x", skip: "x" };
const SPOKEN = { done: "done", bad: "failed", todo: "to come", now: "next", skip: "left out" };

/** Why a result was not announced. */
const SKIPPED = { suppressed: "a kill, or the answer to its plan, made it moot", silent: "it had nothing to say", "announce-skip": "it asked for that" };
/** Why an announcement waits. */
const DEFERRED = { "descendants-active": "what it started is still at work", "missing-requester": "no requester is left to receive the result" };

/** The steps of the delivery of a result: `[how, what, more]` each. */
function steps(row, story) {
  const frozen = row.endedAt !== null;
  const failed = story.tries.filter(({ trace }) => !trace.path).map(({ at, trace }) => ["bad", trace.tried.map((one) => `${one.phase}: ${one.result}`).join(", ") || "not delivered", [clock(at), trace.why || trace.tried.at(-1)?.detail].filter(Boolean).join(" · ")]);
  const last = story.tries.findLast(({ trace }) => trace.path)?.trace;
  const begin = [[frozen ? "done" : "now", "Result frozen", frozen ? clock(row.endedAt) : "when the run ends"]];
  switch (row.delivery?.state) {
    case "skipped": return [...begin, ["skip", "Not announced", SKIPPED[row.delivery.why] ?? row.delivery.why]];
    case "undelivered": return [...begin, ...failed, ["bad", "Given up", row.delivery.why], isUndelivered(row) ? ["todo", "Kept for you", `${story.due ? `until ${until(story.due.at)} · ` : ""}deliver it again or dismiss it`] : ["skip", "Dismissed", "not delivered"]];
    default: {
      const isRead = row.delivery?.state === "delivered";
      const read = isRead ? [row.delivery.deliveredAt && clock(row.delivery.deliveredAt), last && `${last.path}, ${last.form ?? "whole"}`, last?.why].filter(Boolean).join(" · ") : DEFERRED[row.delivery?.why] || row.delivery?.why || "once, whatever crashes";
      return [...begin, [frozen ? "done" : "todo", "Written to the inbox of its requester", "in the same commit"], ...failed, [isRead ? "done" : frozen ? "now" : "todo", "Read by its requester", read]];
    }
  }
}

export function delivery(row, story, store) {
  return block("Delivery", el("span", { class: "soft clip" }, "to ", sessionLink(store, row.requester)),
    el("ol", { class: "steps" }, steps(row, story).map(([how, what, more]) => el("li", { class: `st-${how}` },
      el("span", { class: "stdot", "aria-hidden": "true" }, SIGNS[how] && icon(SIGNS[how], 11)), el("div", null, el("b", null, what), el("span", { class: "soft" }, more)), el("span", { class: "sr" }, SPOKEN[how])))));
}

// ---- limits

const NAMES = { timeoutSeconds: "time", seconds: "working time", tokens: "tokens", usd: "cost", turns: "turns" };
const AMOUNTS = { timeoutSeconds: (amount) => span(amount * 1000), seconds: (amount) => span(amount * 1000), tokens: count, usd };
const amountOf = (name, amount, none) => (amount === null || amount === undefined ? none : (AMOUNTS[name] ?? String)(amount));

export function limits(row, story) {
  const used = new Map(story.budget.map((spent) => [spent.name, spent.used]));
  const rows = story.limits.map(({ name, asked, applied, rule, isCut }) => el("tr", { class: isCut ? "cut" : null },
    el("th", { scope: "row" }, NAMES[name] ?? name), el("td", { class: "num" }, amountOf(name, asked, "–")),
    el("td", { class: "num" }, el("b", null, amountOf(name, applied, "none")), rule && el("span", { class: "faint" }, isCut ? `cut by ${rule}` : rule), used.has(name) && el("span", { class: "faint" }, `${amountOf(name, used.get(name), "0")} used`))));
  return block("Limits", el("span", { class: "soft" }, "asked → applied"),
    rows.length ? el("table", { class: "limits" }, el("thead", { class: "sr" }, el("tr", null, ["limit", "asked", "applied and why"].map((words) => el("th", { scope: "col" }, words)))), el("tbody", null, rows))
      : el("p", { class: "soft" }, "None: neither time nor budget was limited."));
}

// ---- files

/** Files that a run handed over, each to download. */
export function files(row, story) {
  if (!story.artifacts.length) return null;
  return el("ul", { class: "artifacts", "aria-label": "Files" }, story.artifacts.map((artifact) => el("li", null, fileButton(row.runId, artifact))), story.moreArtifacts > 0 && el("li", { class: "soft" }, `and ${plural(story.moreArtifacts, "more file")}`));
}

// ---- facts

const KINDS = { inherit: "its requester's folder", dir: "a folder of its own", worktree: "a git worktree of its own" };

export function facts(row, story, store) {
  const { run, workspace, ran } = story;
  const fact = (name, value, isCopied = false) => value && [el("dt", null, name), el("dd", null, value, isCopied && copyButton(String(value), `Copy ${name}`))];
  return block("Facts", null, el("dl", { class: "facts" },
    fact("agent", row.agentId), fact("model", story.models.join(", ") || row.model), fact("thinking", ran?.thinking),
    fact("requester", sessionLink(store, row.requester)), run.controller !== row.requester && fact("controller", sessionLink(store, run.controller)), fact("origin", run.origin),
    fact("mode", run.mode), fact("cleanup", run.cleanup),
    fact("run id", row.runId, true), fact("session", row.sessionKey, true),
    fact("workspace", KINDS[workspace.kind] ?? workspace.kind), fact("folder", ran?.folder || workspace.folder, true), fact("starts in", workspace.cwd),
    fact("sandbox", ran?.boxed || workspace.isSandboxed ? "yes" : "no"), fact("tools", ran?.tools.join(", ")),
    fact("lane", row.lane), fact("admitted", full(row.createdAt)),
    fact("next", story.due && `${full(story.due.at)}: ${story.due.what}`)));
}
