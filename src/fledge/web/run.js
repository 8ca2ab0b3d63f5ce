// One run in full: how it stands, what it was asked and said, its timeline, how its delivery went, what it cost; and what
// a person can do about it.

import { call, NOT_FOUND, Refusal } from "./gateway.js";
import { chatLink, isRun } from "./conversations.js";
import { button, byId, chip, clock, coalesced, confirmed, duration, el, pause, released, runLink, standing, words } from "./dom.js";
import { Transcript } from "./transcript.js";
import { planAnswer } from "./waiting.js";

export class RunPage {
  #was = "";

  constructor(key, failed) {
    this.key = key;
    this.failed = failed;
    this.refresh = coalesced(() => this.#read(), failed);
    this.#build();
    this.refresh();
    this.transcript.refresh();
  }

  #build() {
    this.facts = el("div", { class: "part" }, el("p", { class: "empty" }, "loading …"));
    this.plan = el("div", { class: "part" });
    this.story = el("div", { class: "part" });
    const parts = {
      log: el("ol", { class: "log", role: "log", "aria-label": "Its entries" }),
      live: el("div", { class: "live", "aria-live": "off", hidden: true }),
      names: ["it was told", "it said"],
    };
    this.transcript = new Transcript(this.key, parts, this.failed);
    const told = el("input", { type: "text", placeholder: "words for it", "aria-label": "Words for this run" });
    const tell = (method) => async () => {
      if (told.value.trim() === "") { told.focus(); throw new Error("there are no words to tell it"); }
      await call(method, { target: this.key, message: told.value.trim() });
      told.value = "";
      this.refresh();
      this.transcript.refresh();
    };
    const kill = async () => { await call("runs.kill", { target: this.key }); await this.refresh(); };
    this.acts = el("div", { class: "row part" }, told,
      button("Send", tell("runs.send"), this.failed),
      button("Steer", tell("runs.steer"), this.failed),
      confirmed("Kill", "Really kill it, and all below?", kill, this.failed));
    byId("view-run").replaceChildren(el("p", {}, el("a", { href: "#/chat" }, "← Chat")), this.facts, this.plan, this.acts,
      el("section", { class: "part", "aria-label": "Transcript" }, el("h3", {}, "Transcript"), parts.log, parts.live), this.story);
  }

  async #read() {
    let told;
    try {
      told = await call("runs.info", { target: this.key });
    } catch (error) {
      if (!(error instanceof Refusal && error.code === NOT_FOUND)) throw error;
      this.facts.replaceChildren(el("p", { class: "empty" }, "There is no such run (any more). Its conversation, if there is one, is below."));
      this.acts.hidden = true;
      return;
    }
    const is = JSON.stringify(told);
    if (is === this.#was) return;
    await released(this.facts);
    this.#was = is;
    const { run } = told;
    this.facts.replaceChildren(...facts(told));
    const waits = run.phase === "awaiting_approval";
    if (waits && this.planOf !== run.runId) this.plan.replaceChildren(el("h3", {}, "Its plan awaits your answer"), planAnswer(run.runId, this.failed, this.refresh));
    if (!waits) this.plan.replaceChildren();
    this.planOf = waits ? run.runId : "";
    this.story.replaceChildren(
      part("Timeline", told.timeline.map((one) => [clock(one.at), moment(one)])),
      part("Delivery", told.tries.map((one) => [clock(one.at), tried(one.trace)])));
  }
}

function facts({ run, stats, models, text, unanswered }) {
  const cost = stats.costUsd === null ? "unknown" : `about $${stats.costUsd.toFixed(4)}`;
  const cached = stats.tokensCached ? `, ${stats.tokensCached} cached` : "";
  const tokens = stats.tokensIn === null ? "none counted" : `${stats.tokensIn} in, ${stats.tokensOut} out${cached}`;
  const lines = [
    ["Status", [chip(standing(run)), ` ${run.phase === run.status ? "" : run.phase}${pause(run)}`]],
    ["Task", [words(run.task)]],
    ["Asked by", [isRun(run.requester) ? runLink(run.requester, run.requester) : chatLink(run.requester)]],
    ["Attempt", [String(run.attempt)]],
    ["Started", [run.startedAt === null ? "not yet" : clock(run.startedAt)]],
    ["Took", [stats.runtimeS === null ? "" : duration(stats.runtimeS)]],
    ["Cost", [`${cost}; tokens: ${tokens}`]],
    ["Model", [models.join(", ")]],
    ["Error", [run.error ?? ""]],
    ["Delivery", [[run.delivery, ...unanswered.map(late)].filter(Boolean).join("; ")]],
    ["Answer", text ? [words(text)] : [""]],
    ["Children", run.children.flatMap((one) => [runLink(one.sessionKey, one.label || one.task.slice(0, 60)), " "])],
  ].filter(([, told]) => told.length && told.some((one) => one !== ""));
  return [
    el("h2", {}, run.label || "Run"),
    el("p", { class: "muted" }, run.sessionKey),
    el("dl", { class: "facts" }, ...lines.flatMap(([name, told]) => [el("dt", {}, name), el("dd", {}, ...told)])),
  ];
}

function late({ session, sinceAt, tries }) {
  return `read by ${session}, unanswered since ${clock(sinceAt)}, tried ${tries === 1 ? "once" : `${tries} times`}`;
}

function moment({ words, phase, attempt, reason }) {
  return `${words} → ${phase.replaceAll("_", " ")}${attempt > 1 ? `, attempt ${attempt}` : ""}${reason ? ` (${reason})` : ""}`;
}

function tried(trace) {
  const steps = (trace.tried ?? []).map((step) => `${step.phase} ${step.result}`).join(", ") || "read through a handle";
  const form = trace.form === "summarised" ? ", in one line" : "";
  return `to ${trace.requester} (${trace.route}): ${steps}${form}${trace.why ? ` (${trace.why})` : ""}`;
}

function part(title, rows) {
  const lines = rows.map(([at, text]) => el("li", {}, el("span", { class: "muted" }, at), el("span", {}, text)));
  return el("section", { class: "part", "aria-label": title }, el("h3", {}, title),
    lines.length ? el("ol", { class: "times" }, ...lines) : el("p", { class: "muted" }, "nothing yet"));
}
