// Entries of a transcript as elements: messages of a person, replies of the agent, tool calls in one line each,
// subagents, completions, lines about events of a run. An element changes only when its values have changed.

import { anew, arrange, button, el, fail, fill, glyph, icon, renew } from "./dom.js";
import { bytes, clock, dayName, full, hm, short, span, usd } from "./format.js";
import { download } from "./gateway.js";
import { changeView } from "./calls.js";
import { doneCard, spawnCard, toolIcon } from "./cards.js";
import { markdown } from "./markdown.js";
import { sessionLink, runPath } from "./names.js";
import { isOn } from "./theme.js";
import { present } from "./time.js";
import { keyOf } from "./transcript.js";

const SILENT = new Set(["NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP"]);
const LINES = {
  steered: ["steer", "was steered"],
  killed: ["kill", "was killed"],
  resumed: ["retry", "goes on"],
  restarted: ["retry", "went on after a restart"],
  crashed: ["bolt", "crashed and went on"],
  plan_approved: ["check", "may carry out its plan"],
  plan_rejected: ["plan", "plans again"],
};

const stamp = (at) => el("time", { class: "stamp", datetime: new Date(at).toISOString(), title: full(at) }, hm(at));
const item = (entry, role, kind, ...children) => el("li", { class: `msg ${kind}`, "data-role": role, "data-seq": entry.seq }, children);

/** Keeps the elements of a transcript between two draws. `names`: of the asker and of the one who answers, mostly for
 * screen readers. */
export class Stream {
  #made = new Map(); // by name: { is, node }

  constructor(transcript, store, names) {
    this.transcript = transcript;
    this.store = store;
    this.names = names;
  }

  /** Let `list` show all entries. */
  draw(list) {
    const used = new Map();
    const keep = (name, is, make) => {
      const old = this.#made.get(name);
      const kept = old?.is === is ? old : { is, node: old ? renew(old.node, make()) : make() };
      used.set(name, kept);
      return kept.node;
    };
    let day = "";
    const nodes = this.transcript.shown.flatMap((entry) => {
      const made = this.#draw(entry, keep);
      const name = new Date(entry.at).toDateString();
      if (!made.length || name === day) return made;
      day = name;
      return [keep(`day ${name}`, dayName(entry.at), () => el("li", { class: "day" }, el("span", null, dayName(entry.at)))), ...made];
    });
    this.#made = used;
    arrange(list, nodes);
  }

  #draw(entry, keep) {
    const name = keyOf(entry);
    switch (entry.type) {
      case "reply": return this.#reply(entry, name, keep);
      case "completions": return entry.completions.map((completion, n) => keep(`${name} ${n}`, JSON.stringify(completion), () => this.#completion(entry, completion, n)));
      case "message": return [keep(name, JSON.stringify(entry), () => this.#message(entry))];
      case "note": return [keep(name, String(entry.size), () => item(entry, "note", "event", icon("plan", 14), folded(`a summary of what was before${entry.covers ? `, up to entry ${entry.covers}` : ""}`, entry.text), stamp(entry.at)))];
      case "line": return [keep(name, JSON.stringify(entry), () => this.#line(entry))];
      case "command": return [keep(name, JSON.stringify(entry), () => command(entry))];
      default: return []; // results are shown with their calls
    }
  }

  #message(entry) {
    const [asker] = this.names;
    if (entry.kind === "task") {
      return item(entry, "task", "told", el("p", { class: "iolabel" }, "task, from ", entry.source ? sessionLink(this.store, entry.source) : asker.toLowerCase()), wordsOf(this.transcript, entry), files(this.transcript, entry));
    }
    if (entry.by === "person") {
      return item(entry, "user", "user", el("div", { class: "bubble" }, el("span", { class: "sr" }, `${asker}: `), wordsOf(this.transcript, entry), files(this.transcript, entry)),
        entry.kind === "steer" && el("span", { class: "faint" }, "steered"), stamp(entry.at));
    }
    if (entry.by === "session") {
      return item(entry, "session", "event", icon("chat", 14), el("span", null, "from ", sessionLink(this.store, entry.source)), folded("", entry.text), stamp(entry.at));
    }
    return item(entry, "quiet", "event", icon("clock", 14), folded(entry.kind, entry.text), stamp(entry.at));
  }

  #reply(entry, name, keep) {
    const parts = [];
    const isSilent = SILENT.has(entry.text.trim());
    const calls = entry.calls ?? [];
    if (isSilent) parts.push(keep(name, "silent", () => item(entry, "quiet", "event faint", icon("check", 14), "nothing to say", stamp(entry.at))));
    else if (entry.text) parts.push(keep(name, `${entry.text.length} ${entry.size} ${entry.isCut}`, () => this.#prose(entry)));
    const plain = calls.map((toolCall, n) => [toolCall, n]).filter(([toolCall]) => !toolCall.childSessionKey);
    if (plain.length) {
      const list = keep(`${name} calls`, "", () => item(entry, "calls", "calls", el("div", { class: "calllist" })));
      arrange(list.firstChild, plain.map(([toolCall, n]) => this.#call(toolCall, `${name} call ${n}`, keep)));
      parts.push(list);
    }
    calls.forEach((toolCall, n) => {
      if (toolCall.childSessionKey) parts.push(this.#spawn(entry, toolCall, `${name} spawn ${n}`, keep));
    });
    return parts;
  }

  #prose(entry) {
    const cost = entry.costUsd === null || entry.costUsd === undefined ? "" : ` · ${usd(entry.costUsd)}`;
    return item(entry, "assistant", "bot", el("span", { class: "sr" }, `${this.names[1]}: `), wordsOf(this.transcript, entry),
      entry.isCut && el("p", { class: "because" }, icon("warn", 14), "The token limit cut this reply."),
      el("time", { class: "stamp", datetime: new Date(entry.at).toISOString(), title: `${full(entry.at)}${entry.model ? ` · ${entry.model}` : ""}${cost}` }, hm(entry.at)));
  }

  #call(toolCall, key, keep) {
    const isOpen = this.#made.get(key)?.node.open ?? !isOn("fold");
    return keep(key, JSON.stringify(toolCall), () => {
      const { name, status, startedAt, endedAt } = toolCall;
      const sign = { ok: icon("check", 13), error: icon("x", 13), unknown: icon("warn", 13), asked: glyph("you", 13), running: glyph("running", 13) }[status];
      const opened = ({ currentTarget: { open, lastChild: body } }) => { if (open && !body.childElementCount) fill(body, this.#inputAndOutput(toolCall)); };
      return el("details", { class: `call s-${status}`, "data-status": status, open: isOpen, on: { toggle: opened } },
        el("summary", null, icon(toolIcon(name), 14), el("b", null, name), el("span", { class: "mono clip grow" }, shortArguments(toolCall.arguments)),
          el("span", { class: "faint num", "data-since": status === "running" ? startedAt : null }, endedAt ? span(endedAt - startedAt) : status === "asked" ? "waits for you" : span(present() - startedAt)),
          sign, el("span", { class: "sr" }, status === "asked" ? "waits for you" : status)),
        el("div", { class: "io" }, isOpen && this.#inputAndOutput(toolCall)));
    });
  }

  #inputAndOutput(toolCall) {
    const { question, resultSeq, status } = toolCall;
    return [el("p", { class: "iolabel" }, "input"), output(toolCall.arguments, 0, null), toolCall.change && changeView(toolCall.change.path, toolCall.change),
      question && el("p", { class: "iolabel" }, asked(question)),
      resultSeq > 0 && [el("p", { class: "iolabel" }, status === "ok" ? "output" : `output (${status})`), this.#output(resultSeq)]];
  }

  #output(seq) {
    const result = this.transcript.entry(seq);
    const whole = async () => (await this.transcript.whole(seq)).text;
    if (result) return output(result.text, result.size, whole);
    const loading = anew(el("p", { class: "soft" }, "loading …"));
    whole().then((text) => loading.replaceWith(output(text, 0, null))).catch(fail);
    return loading;
  }

  #spawn(entry, toolCall, name, keep) {
    const row = this.store.rows.get(toolCall.childSessionKey);
    if (!row) {
      return keep(name, "unknown", () => item(entry, "spawn", "event", icon("branch", 14), el("span", null, "started ", el("a", { class: "runlink", href: runPath(toolCall.childSessionKey) }, spawnLabel(toolCall.arguments))), stamp(entry.at)));
    }
    const shown = row.isActive ? [row, ...this.store.children(row.sessionKey)] : [row.label, row.task, row.model, row.status, row.phase];
    return keep(name, JSON.stringify(shown), () => item(entry, "spawn", "wide", spawnCard(this.store, row)));
  }

  #completion(entry, completion, n) {
    if (completion.kind === "plan") {
      return item(entry, "line", "event", icon("plan", 14), el("span", { class: "min" }, el("a", { class: "runlink", href: runPath(completion.sessionKey) }, completion.label || "a subagent"), " has a plan"), stamp(entry.at));
    }
    const whole = async () => (await this.transcript.whole(entry.seq)).completions[n].result;
    return item(entry, "completion", "wide", doneCard(completion, entry.at, whole));
  }

  #line(entry) {
    const [ico, verb] = LINES[entry.kind] ?? ["clock", entry.kind];
    const name = entry.sessionKey === this.transcript.key ? "this run" : el("a", { class: "runlink", href: runPath(entry.sessionKey) }, entry.label || "a subagent");
    return item(entry, "line", "event", icon(ico, 14), el("span", { class: "min" }, name, ` ${verb}`, entry.reason && el("span", { class: "faint" }, ` · ${short(entry.reason, 160)}`)), stamp(entry.at));
  }
}

/** The text of an entry; if it is cut, a button gets the whole text. */
function wordsOf(transcript, entry) {
  const body = markdown(bareText(entry));
  if (!entry.size) return body;
  const holder = anew(el("div", null, body));
  holder.append(button(`Show all (${bytes(entry.size)})`, { kind: "link", act: async () => fill(holder, markdown((await transcript.whole(entry.seq)).text)) }));
  return holder;
}

/** The text of an entry without its last lines, which name the files that came with it: the files are shown below. */
function bareText({ text, size, images = [], attachments = [] }) {
  const lines = text.split("\n");
  const named = images.length + attachments.length;
  const isWhole = !size && lines.slice(lines.length - named).every((line) => /^\[(image|file)\b.*\]$/.test(line));
  return named && isWhole ? lines.slice(0, -named).join("\n") : text;
}

/** The images of an entry, and its attachments to download. */
function files(transcript, entry) {
  const images = (entry.images ?? []).map((image) => el("span", { class: "attach" }, icon("file", 13), image.name || "image", el("span", { class: "faint" }, `${image.width}×${image.height}, ${bytes(image.bytes)}`)));
  const attachments = (entry.attachments ?? []).map(({ name, size, type }) => button(`${name} (${bytes(size)})`, {
    kind: "attach", ico: "clip", title: `Download ${name} (${type})`,
    act: () => download(`/attachments/${encodeURIComponent(transcript.key)}/${encodeURIComponent(name)}`, name),
  }));
  return [...images, ...attachments];
}

/** The input or output of a tool. `size`: of the whole text, if `text` is only its beginning; else 0. */
function output(text, size, whole) {
  const shown = el("pre", { tabindex: "0", dir: "auto" }, text || "(empty)");
  if (!size) return shown;
  const more = button(`Show all (${bytes(size)})`, { kind: "link", act: async () => { fill(shown, await whole()); more.remove(); } });
  return anew(el("div", null, shown, more));
}

function asked(question) {
  const who = question.answeredBy ? ` by ${question.answeredBy}` : "";
  if (question.rule && !question.answeredBy) return `ran by a rule (${question.rule})`;
  return `${question.state}${who}${question.words ? `: “${short(question.words, 120)}”` : ""}`;
}

/** A call's arguments in one line: the value alone if there is one, else name and value. */
function shortArguments(text) {
  let given;
  try { given = JSON.parse(text); } catch { return short(text, 160); }
  if (given === null || typeof given !== "object") return short(text, 160);
  const values = Object.entries(given).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return short(values.length === 1 ? values[0][1] : values.map(([name, value]) => `${name}: ${short(value, 60)}`).join("  "), 160);
}

function spawnLabel(text) {
  try {
    const { label, task } = JSON.parse(text);
    return label || short(task ?? "", 60) || "a subagent";
  } catch {
    return "a subagent";
  }
}

/** The first line of a text; opened, the whole text. */
function folded(name, text) {
  const line = short(text.split("\n").find((one) => one.trim() !== "") ?? "", 100);
  const words = [name && `${name}: `, line];
  if (line === text.trim()) return el("span", { class: "min" }, words);
  return el("details", { class: "min grow" }, el("summary", null, words), el("pre", { dir: "auto", tabindex: "0" }, text));
}

function command(entry) {
  const { line, text, state, at, again } = entry;
  return el("li", { class: "msg command", "data-role": "command", "data-state": state },
    el("p", { class: "cardline" }, el("span", { class: "mono grow clip" }, line), el("time", { class: "stamp", title: full(at) }, clock(at))),
    el("pre", { dir: "auto", tabindex: "0" }, state === "running" ? "…" : text),
    again && el("p", { class: "cardfoot" }, button("Try again", { kind: "small", ico: "retry", act: again })));
}
