// Cards that stand for a run or for something that waits: a live subagent, a completion, a question, a plan. The chat,
// the page of a run and For you show the same cards. Ages tick by `data-since`, bars by `.strip`; app.js moves both
// once a second, so that a card is made anew only when its rows change.

import { strip } from "./bars.js";
import { announce, button, el, fail, fill, glyph, icon } from "./dom.js";
import { age, bytes, clock, count, full, plural, span, until, usd } from "./format.js";
import { call, Refusal } from "./gateway.js";
import { mayAct } from "./keys.js";
import { code, inline, markdown } from "./markdown.js";
import { runLink, runPath, sessionLink } from "./names.js";
import { costOfAll, purse } from "./spent.js";
import { nameOf, standing, tookMs } from "./standing.js";
import * as actions from "./actions.js";

const SETTLED_MS = 400; // a key does nothing to a card that appeared or moved so recently
const FOLDED_CHARS = 400;

/** How a run stands, as a chip. */
export const chip = (row) => { const { word, tone } = standing(row); return el("span", { class: `chip c-${tone}` }, word); };

/** An age that ticks while the run is at work. */
export const ageOf = (row, kind = "num soft") => (row.endedAt === null
  ? el("span", { class: kind, "data-since": row.startedAt ?? row.createdAt }, age(tookMs(row)))
  : el("span", { class: kind }, age(tookMs(row))));

/** Move every age and every bar that is shown to the present. */
export function tick(now = Date.now()) {
  for (const one of document.querySelectorAll("[data-since]")) {
    const words = age(now - Number(one.dataset.since));
    if (one.textContent !== words) one.textContent = words;
  }
  for (const one of document.querySelectorAll(".strip[data-live]")) one.place?.(now);
}

const TOOL_ICONS = { exec: "term", edit: "edit", write: "edit", read: "file", web_fetch: "globe", web_search: "globe", sessions_spawn: "branch" };
export const toolIcon = (name) => TOOL_ICONS[name] ?? "gear";

const NOW_ICONS = { tool: "term", model: "brain", you: "hand", lost: "mail", delivery: "mail", children: "branch", stuck: "warn", undriven: "warn", retry: "retry" };

/** What a run does or waits for, as parts of a line; null once nothing more will happen. */
export function doing(row) {
  if (!row.now) return null;
  const { kind, text, sinceAt } = row.now;
  const [tool, ...more] = text.split(" ");
  const words = kind === "tool" ? [el("b", null, tool), " ", el("span", { class: "mono" }, more.join(" "))] : text;
  return [icon(kind === "tool" ? toolIcon(tool) : NOW_ICONS[kind] ?? "clock", 14), el("span", { class: "clip" }, words),
    sinceAt && ["tool", "model"].includes(kind) ? el("span", { class: "faint nowrap num", "data-since": sinceAt }, age(Date.now() - sinceAt)) : null];
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
        button("Steer", { kind: "small ghost", ico: "steer", act: () => actions.steer(row) }),
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

const OUTCOME_TONES = { ok: "ok", error: "error", timeout: "timeout", killed: "killed", unknown: "waiting" };
const CAME = { expired: "was not answered in time", late: "came back late" };

/** What came of a child, as its requester read it. Where the result is not here, `whole()` gets it once the card is
 * seen; if it is gone with its run, the summary stands for it. */
export function doneCard(completion, readAt, whole) {
  const { label, sessionKey, status, summary = "", error, stats, artifacts = [] } = completion;
  const tone = OUTCOME_TONES[status] ?? "waiting";
  const body = el("div", { class: "result" });
  const card = el("article", { class: `card done d-${tone}`, "data-run": sessionKey, "aria-label": `Result of ${label || sessionKey}` },
    el("header", { class: "cardline" }, glyph(tone), el("a", { class: "runlink strong clip", href: runPath(sessionKey) }, label || "a subagent"),
      el("span", { class: "soft nowrap" }, CAME[completion.kind] ?? (status === "ok" ? "came back" : status)), el("span", { class: "grow" }), stats?.runtimeS !== undefined && el("span", { class: "num soft" }, span(stats.runtimeS * 1000))),
    error && el("p", { class: "because c-error" }, icon("warn", 14), error),
    body,
    el("footer", { class: "cardfoot" },
      artifacts.map((artifact) => el("span", { class: "attach" }, icon("file", 13), artifact.name, el("span", { class: "faint" }, bytes(artifact.bytes)))),
      completion.moreArtifacts > 0 && el("span", null, `and ${plural(completion.moreArtifacts, "more file")}`),
      stats && el("span", { class: "num" }, `${count((stats.tokensIn ?? 0) + (stats.tokensOut ?? 0))} tok`),
      stats?.costUsd !== null && stats?.costUsd !== undefined && el("span", { class: "num" }, usd(stats.costUsd)),
      el("span", { class: "grow" }),
      el("span", { class: "once", title: `Read by this conversation exactly once, ${full(readAt)}` }, icon("check", 13), `delivered ${clock(readAt)}`)));
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

/** Do something once an element comes into sight, or nearly. */
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
    more.firstChild.textContent = isFolded ? "Show all" : "Show less";
  } });
  return more;
}

// ---- what waits for a person

/** The arguments of a call as a person reads them: a command, a change of a file, else name by name. */
export function argumentsOf(tool, text) {
  let given;
  try { given = JSON.parse(text); } catch { return code(text, ""); }
  if (given === null || typeof given !== "object" || Array.isArray(given)) return code(text, "json");
  const { command, path, content, oldText, newText, old, ...rest } = given;
  const before = oldText ?? old;
  const after = newText ?? given.new;
  if (tool === "exec" && typeof command === "string") return [code(command, "bash"), table(rest)];
  if (typeof path === "string" && typeof content === "string") return [table({ path, ...rest }), code(lines("+", content), "diff")];
  if (typeof path === "string" && typeof before === "string" && typeof after === "string") {
    const { new: _, ...others } = rest;
    return [table({ path, ...others }), code(`${lines("-", before)}\n${lines("+", after)}`, "diff")];
  }
  return table(given);
}

const lines = (mark, text) => text.replace(/\n$/, "").split("\n").map((line) => `${mark} ${line}`).join("\n");

function table(given) {
  const rows = Object.entries(given);
  if (!rows.length) return null;
  return el("dl", { class: "arguments" }, rows.map(([name, value]) => [el("dt", null, name), el("dd", null, typeof value === "string" ? value : JSON.stringify(value))]));
}

/** A card that is answered by buttons, or by keys while it has the focus. `keys`: what each letter does. */
function answerable(card, keys) {
  card.movedAt = performance.now();
  card.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.defaultPrevented || !mayAct(event)) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.target.closest(".ask") !== card || performance.now() - card.movedAt < SETTLED_MS) return;
    act();
  });
  return card;
}

/** Cards of a view have been arranged: remember which of them moved, so that a key meant for another does nothing. */
export function settle(cards) {
  for (const card of cards) {
    if (card.placedAt !== undefined && card.placedAt !== card.offsetTop) card.movedAt = performance.now();
    card.placedAt = card.offsetTop;
  }
}

/** The sessions above the one that asks, and itself: links where they are known, else their labels. */
function lineage(store, { sessionKey, lineage: labels, label }) {
  const path = [];
  for (let at = sessionKey; at && path.length <= labels.length; at = store.rows.get(at)?.requester) path.unshift(at);
  const parts = path.length > labels.length ? path.map((key) => sessionLink(store, key)) : [...labels, sessionLink(store, sessionKey, label)];
  return el("span", { class: "lineage" }, parts.map((part, n) => [n > 0 && icon("right", 11), part]));
}

/** What a person should know before a yes. */
function touches({ why, cwd, isSandboxed }) {
  const facts = [["hand", why], ["folder", cwd && `in ${cwd}`], isSandboxed ? ["check", "in a sandbox"] : ["warn", "no sandbox"]].filter(([, words]) => words);
  return el("ul", { class: "touches", "aria-label": "What to know" }, facts.map(([ico, words]) => el("li", null, icon(ico, 13), words)));
}

/** An answer is sent; the card says what came of it. */
function answering(store, card, words) {
  return async (method, params) => {
    try {
      await call(method, params);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      said(card, `Not accepted: ${error.message}. What waits now is shown here.`, "error");
      store.readWaiting();
      return;
    }
    said(card, words, "ok");
    store.readWaiting();
  };
}

function said(card, words, tone) {
  fill(card, el("p", { class: "cardline" }, glyph(tone), words));
  card.classList.add("answered");
  announce(words);
}

/** A card that was set aside: one line, until it is wanted again. */
function aside(card, parts, shared, name) {
  const back = () => { shared.kept.delete(name); card.classList.remove("answered"); fill(card, parts); card.focus(); };
  return () => {
    shared.kept.set(name, true);
    card.classList.add("answered");
    fill(card, el("p", { class: "cardline" }, glyph("waiting"), el("span", { class: "grow" }, "Set aside. It stays under For you, and nothing was answered."), button("Show it", { kind: "small", act: back })));
    announce("set aside");
  };
}

/** A tool call that waits for a yes or a no. It never changes: another call is another card. `isChanged`: the call that
 * was shown here before is not the one that waits now. */
export function questionCard(question, shared, isChanged = false) {
  const { store } = shared;
  const { id, digest } = question;
  const row = store.rows.get(question.sessionKey);
  const who = row ? nameOf(row) : question.label || "this conversation";
  const card = el("article", { class: "card ask", tabindex: "0", "data-question": id, "aria-label": `${who} asks to run ${question.tool}` });
  const answer = (words) => answering(store, card, words);
  const allow = () => answer(`Allowed once: ${question.tool} runs.`)("approvals.approve", { id, digest });
  const deny = () => answer("Denied: it is told so and goes on without it.")("approvals.deny", { id, digest });
  const parts = [];
  const later = aside(card, parts, shared, `aside ${id}`);
  const raw = el("details", { class: "raw" }, el("summary", null, "as the model wrote it"), el("pre", { dir: "ltr", tabindex: "0" }, question.arguments));
  parts.push(
    el("header", { class: "cardline" }, glyph("you"), el("strong", null, `May it run ${question.tool}?`), el("span", { class: "grow" }),
      el("span", { class: "soft nowrap" }, "asked ", el("span", { "data-since": question.askedAt }, age(Date.now() - question.askedAt)), " ago")),
    el("p", { class: "task" }, lineage(store, question)),
    ...isChanged ? [el("p", { class: "because c-error" }, icon("warn", 14), "The call has changed since it was shown. This is the one that waits now.")] : [],
    ...[argumentsOf(question.tool, question.arguments)].flat().filter(Boolean), raw, touches(question),
    el("footer", { class: "cardfoot acts" },
      button("Allow once", { kind: "primary", key: "A", act: allow }),
      question.always !== "" && button("Always …", { act: () => always.toggleAttribute("hidden") }),
      button("Deny", { key: "D", act: deny }),
      button("No, because …", { act: () => { because.hidden = !because.hidden; because.querySelector("input").focus(); } }),
      button("Not now", { kind: "ghost", key: "S", act: later }),
      el("span", { class: "grow" }),
      el("span", { class: "faint", title: full(question.expiresAt) }, `until ${until(question.expiresAt)} · ${digest.slice(0, 12)}`)));
  const always = alwaysPart(question, answer);
  const because = wordsPart("Why not? The model reads this.", "Deny with these words", (words) => answer("Denied, with your words.")("approvals.deny", { id, digest, words }));
  parts.push(always, because);
  fill(card, parts);
  if (shared.kept.has(`aside ${id}`)) later();
  return answerable(card, { a: allow, d: deny, s: later });
}

function alwaysPart({ id, digest, always, forSubagents }, answer) {
  const children = el("input", { type: "checkbox" });
  children.checked = forSubagents;
  children.disabled = forSubagents;
  return el("div", { class: "because", hidden: true },
    el("div", { class: "grow" }, "From now on commands that begin with ", el("code", null, always), " run without a question."),
    el("label", { class: "tick" }, children, "subagents too"),
    button("Always allow", { kind: "small primary", act: () => answer(`Allowed: ${always} … runs without a question from now on.`)("approvals.approve", { id, digest, always: true, children: children.checked }) }));
}

function wordsPart(label, words, act) {
  const box = el("input", { class: "field", type: "text", maxlength: 4000, placeholder: label, "aria-label": label });
  const go = () => (box.value.trim() === "" ? box.focus() : act(box.value.trim()));
  box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); send.click(); } });
  const send = button(words, { kind: "small", act: go });
  return el("div", { class: "because", hidden: true }, box, send);
}

/** A plan that waits for an answer. */
export function planCard(plan, shared) {
  const { store } = shared;
  const target = plan.runId;
  const who = plan.label || "a subagent";
  const card = el("article", { class: "card ask plan", tabindex: "0", "data-plan": plan.sessionKey, "aria-label": `Plan of ${who}` });
  const answer = (words) => answering(store, card, words);
  const box = el("textarea", { class: "field", rows: 2, maxlength: 4000, placeholder: "What should be different? With a yes: what to mind.", "aria-label": "Words for the plan", hidden: true });
  const approve = () => answer(`Approved: ${who} carries it out.`)("plans.approve", { target, ...box.value.trim() ? { words: box.value.trim() } : {} });
  const change = () => {
    if (!box.hidden && box.value.trim()) return answer(`${who} plans again, with your words.`)("plans.reject", { target, reason: box.value.trim() });
    if (!box.hidden) announce("Say what should be different: it plans again with that.");
    box.hidden = false;
    box.focus();
    return null;
  };
  const parts = [];
  const later = aside(card, parts, shared, `aside ${target}`);
  const text = el("div", { class: "result" }, markdown(plan.text || "(it wrote nothing)"));
  parts.push(
    el("header", { class: "cardline" }, glyph("plan"), el("strong", null, "A plan for you"), el("span", { class: "grow" }), el("span", { class: "soft nowrap" }, "ready ", el("span", { "data-since": plan.askedAt }, age(Date.now() - plan.askedAt)), " ago")),
    el("p", { class: "task" }, lineage(store, plan)), text, box,
    el("footer", { class: "cardfoot acts" },
      button("Approve", { kind: "primary", key: "A", act: approve }),
      button("Ask for changes", { key: "R", act: change }),
      button("Not now", { kind: "ghost", key: "S", act: later }),
      el("span", { class: "grow" }), el("span", { class: "faint", title: full(plan.expiresAt) }, `nothing has been changed yet · until ${until(plan.expiresAt)}`)));
  fill(card, parts);
  if (shared.kept.has(`aside ${target}`)) later();
  return answerable(card, { a: approve, r: change, s: later });
}

/** The cards of these questions and plans, oldest first; each is made once. `made` keeps them between two draws. */
export function waitingCards(questions, plans, shared, made) {
  const wanted = [
    ...questions.map((question) => [`question ${question.id} ${question.digest}`, question.askedAt, () => questionCard(question, shared, made.has(`id ${question.id}`)), `id ${question.id}`]),
    ...plans.map((plan) => [`plan ${plan.sessionKey} ${plan.runId}`, plan.askedAt, () => planCard(plan, shared), ""]),
  ].sort((one, other) => one[1] - other[1]);
  const names = new Set(wanted.map(([name]) => name));
  for (const name of [...made.keys()]) if (!names.has(name) && !name.startsWith("id ")) made.delete(name);
  return wanted.map(([name, , make, id]) => {
    if (!made.has(name)) made.set(name, make());
    if (id) made.set(id, null);
    return made.get(name);
  });
}
