// Cards that stand for a run: a live subagent, a completion. Ages tick by `data-since`, bars by `.strip`; app.js moves
// both once a second, so that a card is drawn again only when its rows change. Questions and plans are in asks.js.

import { strip } from "./bars.js";
import { anew, button, el, fail, fill, glyph, icon, write } from "./dom.js";
import { age, bytes, clock, count, full, plural, span, usd } from "./format.js";
import { download } from "./gateway.js";
import { inline, markdown } from "./markdown.js";
import { runLink, runPath } from "./names.js";
import { costOfAll, purse } from "./spent.js";
import { nameOf, standing, tookMs } from "./standing.js";
import { present } from "./time.js";
import * as actions from "./actions.js";

const FOLDED_CHARS = 400;

/** How a run stands, as a chip. */
export const chip = (row) => { const { word, tone } = standing(row); return el("span", { class: `chip c-${tone}` }, word); };

/** An age that ticks while the run is at work. */
export const ageOf = (row, kind = "num soft") => (row.endedAt === null
  ? el("span", { class: kind, "data-since": row.startedAt ?? row.createdAt }, age(tookMs(row)))
  : el("span", { class: kind }, age(tookMs(row))));

/** Move every age and every bar that is shown to the present. */
export function tick(now = present()) {
  for (const one of document.querySelectorAll("[data-since]")) {
    write(one, age(now - Number(one.dataset.since)));
  }
  for (const one of document.querySelectorAll(".strip[data-live]")) one.place?.(now);
}

const TOOL_ICONS = { exec: "term", edit: "edit", write: "edit", read: "file", web_fetch: "globe", web_search: "globe", sessions_spawn: "branch" };
export const toolIcon = (name) => TOOL_ICONS[name] ?? "gear";

const NOW_ICONS = { tool: "term", model: "brain", you: "hand", lost: "mail", delivery: "mail", children: "branch", stuck: "warn", undriven: "warn", retry: "retry" };

/** The activity of a run, or the reason why it waits, as parts of a line; null once nothing more will happen. */
export function doing(row) {
  if (!row.now) return null;
  const { kind, text, sinceAt } = row.now;
  const [tool, ...more] = text.split(" ");
  const words = kind === "tool" ? [el("b", null, tool), " ", el("span", { class: "mono" }, more.join(" "))] : text;
  return [icon(kind === "tool" ? toolIcon(tool) : NOW_ICONS[kind] ?? "clock", 14), el("span", { class: "clip" }, words),
    sinceAt && ["tool", "model"].includes(kind) ? el("span", { class: "faint nowrap num", "data-since": sinceAt }, age(present() - sinceAt)) : null];
}

/** A subagent: a card while it is at work, one line once it is over. */
export function spawnCard(store, row) {
  if (!row.isActive) {
    return el("article", { class: "card slim", "data-run": row.sessionKey, "aria-label": `Subagent ${nameOf(row)}` },
      el("div", { class: "cardline" }, icon("branch", 14), el("span", { class: "soft" }, "started"), runLink(row), el("span", { class: "soft clip grow" }, inline(row.task)),
        chip(row), el("span", { class: "faint nowrap only-wide" }, [row.agentId, row.model].filter(Boolean).join(" · "))));
  }
  const below = store.children(row.sessionKey);
  const now = doing(row);
  const { word, tone } = standing(row);
  return el("article", { class: "card live", "data-run": row.sessionKey, "aria-label": `Subagent ${nameOf(row)}, ${word}` },
    el("header", { class: "cardline" }, glyph(tone), runLink(row, "strong clip"), chip(row), row.attempt > 1 && el("span", { class: "faint nowrap" }, `attempt ${row.attempt}`), el("span", { class: "grow" }), ageOf(row)),
    row.task && row.task !== row.label && el("p", { class: "task" }, inline(row.task)),
    now && el("p", { class: `doing ${tone === "stuck" ? "is-stuck" : ""}` }, now),
    below.length > 0 && el("ul", { class: "kids", "aria-label": "Its children" }, below.map((kid) => kidRow(kid, row.createdAt))),
    el("footer", { class: "cardfoot" },
      el("span", null, [row.agentId, row.model].filter(Boolean).join(" · ")), el("span", { class: "num" }, `${count(row.tokensIn + row.tokensOut)} tok`), costOfAll(row) !== null && purse(row, true, costOfAll(row)), el("span", { class: "grow" }),
      el("span", { class: "controls" },
        !row.planId && button("Steer", { kind: "small ghost", ico: "steer", act: () => actions.steer(row) }),
        button("Kill", { kind: "small ghost danger", ico: "kill", act: () => actions.kill(row) }),
        el("a", { class: "btn small", href: runPath(row.sessionKey) }, "Open"))));
}

function kidRow(row, from) {
  const { word, tone } = standing(row);
  const bars = strip(row, (now) => ({ from, to: now }));
  bars.dataset.live = "";
  return el("li", null, el("a", { href: runPath(row.sessionKey), class: "kid" }, glyph(tone, 14),
    el("span", { class: "clip" }, nameOf(row), row.attempt > 1 && el("span", { class: "faint" }, ` · attempt ${row.attempt}`)),
    bars, el("span", { class: `kidstate c-${tone}` }, word), ageOf(row, "num kidage")));
}

/** A file that a run handed over, to download. */
export function fileButton(runId, { name, bytes: size }) {
  const parts = name.split("/");
  const path = `/artifacts/${encodeURIComponent(runId)}/${parts.map(encodeURIComponent).join("/")}`;
  const made = button(name, { kind: "attach", ico: "file", title: `Download ${name}`, act: () => download(path, parts.at(-1)) });
  made.append(el("span", { class: "faint num" }, bytes(size)));
  return made;
}

const OUTCOME_TONES = { ok: "ok", error: "error", timeout: "timeout", killed: "killed", unknown: "waiting" };
const CAME = { expired: "was not answered in time", late: "came back late" };

/** The result of a child, as its requester read it. If the completion has only a summary, `whole()` gets the result
 * once the card is seen; if the result is gone with its run, the card shows the summary. */
export function doneCard(completion, readAt, whole) {
  const { label, sessionKey, status, summary = "", error, stats, artifacts = [] } = completion;
  const tone = OUTCOME_TONES[status] ?? "waiting";
  const body = el("div", { class: "result" });
  const card = anew(el("article", { class: `card done d-${tone}`, "data-run": sessionKey, "aria-label": `Result of ${label || sessionKey}` },
    el("header", { class: "cardline" }, glyph(tone), el("a", { class: "runlink strong clip", href: runPath(sessionKey) }, label || "a subagent"),
      el("span", { class: "soft nowrap" }, CAME[completion.kind] ?? (status === "ok" ? "came back" : status)), el("span", { class: "grow" }), stats?.runtimeS !== undefined && el("span", { class: "num soft" }, span(stats.runtimeS * 1000))),
    error && el("p", { class: "because c-error" }, icon("warn", 14), error),
    body,
    el("footer", { class: "cardfoot" },
      artifacts.map((artifact) => fileButton(completion.runId, artifact)),
      completion.moreArtifacts > 0 && el("span", null, `and ${plural(completion.moreArtifacts, "more file")}`),
      stats && el("span", { class: "num" }, `${count((stats.tokensIn ?? 0) + (stats.tokensOut ?? 0))} tok`),
      stats?.costUsd !== null && stats?.costUsd !== undefined && el("span", { class: "num" }, usd(stats.costUsd)),
      el("span", { class: "grow" }),
      el("span", { class: "once", title: `Read by this conversation exactly once, ${full(readAt)}` }, icon("check", 13), `delivered ${clock(readAt)}`))));
  const show = (text) => {
    body.classList.remove("loading");
    fill(body, markdown(text || "(without words)"));
    const more = foldable(body, text);
    if (more) body.after(more);
  };
  const size = new TextEncoder().encode(summary).length;
  if (size >= (completion.resultBytes ?? 0)) show(summary);
  else {
    body.classList.add("loading");
    body.classList.toggle("fold", completion.resultBytes > FOLDED_CHARS);
    whenSeen(body, async () => show((await whole()) || `… ${summary}`));
  }
  return card;
}

const waitingToBeSeen = new WeakMap();
const seen = new IntersectionObserver((changes) => {
  for (const { isIntersecting, target } of changes) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    waitingToBeSeen.get(target)().catch(fail);
  }
}, { rootMargin: "200px" });

/** Call `act` once an element comes into sight, or nearly. */
function whenSeen(element, act) {
  waitingToBeSeen.set(element, act);
  seen.observe(element);
}

/** Fold a long text, with a button that shows all of it; null if it is short. */
export function foldable(body, text) {
  const isLong = text.length > FOLDED_CHARS || text.split("\n", 9).length > 8;
  body.classList.toggle("fold", isLong);
  if (!isLong) return null;
  const more = button("Show all", { kind: "link", "aria-expanded": "false", act: () => {
    const isFolded = body.classList.toggle("fold");
    more.setAttribute("aria-expanded", String(!isFolded));
    write(more.firstChild, isFolded ? "Show all" : "Show less");
  } });
  return more;
}
