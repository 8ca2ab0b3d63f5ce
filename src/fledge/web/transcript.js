// A transcript on the page. Its entries are read by number, so none is shown twice; what a turn is saying right now is
// shown beside them until the entry is there. Used for the conversation and for a run.

import { call, NOT_FOUND, Refusal } from "./gateway.js";
import { clock, coalesced, el, plain, words } from "./dom.js";

const PAGE = 100;
const SILENT = new Set(["NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP"]);
const SAID = new Set(["", "send", "task"]);

export class Transcript {
  #last = 0;
  #first = 0;
  #shown = PAGE;
  #begun = false;
  #text = null;
  #status = null;

  /** `parts`: `log` for entries, `live` for what is being said; `names` of who asks and who answers; `grown(entries,
   * more)` is told of each reading, `moved()` of each change of what is being said. */
  constructor(key, parts, failed) {
    this.key = key;
    this.parts = parts;
    this.refresh = coalesced(() => this.#read(), failed);
  }

  async #read() {
    const entries = await this.#ask({ after: this.#last, limit: this.#begun ? 1000 : this.#shown });
    const fresh = entries.filter((entry) => entry.seq > this.#last);
    this.parts.log.append(...fresh.map((entry) => shown(entry, this.parts.names)));
    if (fresh.length) {
      this.#first ||= fresh[0].seq;
      this.#last = fresh.at(-1).seq;
      if (fresh.some((entry) => entry.role === "assistant")) this.#quieten(false);
    }
    const more = !this.#begun && entries.length === this.#shown;
    this.#begun = true;
    this.parts.grown?.(fresh, more);
    // What comes from now on is read out; what was there already is not.
    this.parts.log.setAttribute("aria-live", "polite");
  }

  /** Show as much again of what came before. True if there may be still more. */
  async earlier() {
    this.#shown += 2 * PAGE;
    const limit = Math.min(this.#shown, 1000);
    const entries = await this.#ask({ limit });
    this.parts.log.setAttribute("aria-live", "off");
    const older = entries.filter((entry) => entry.seq < this.#first);
    this.parts.log.prepend(...older.map((entry) => shown(entry, this.parts.names)));
    if (older.length) this.#first = older[0].seq;
    requestAnimationFrame(() => this.parts.log.setAttribute("aria-live", "polite"));
    return entries.length === limit && limit < 1000;
  }

  async #ask(range) {
    try {
      return await call("sessions.history", { session: this.key, tools: true, ...range });
    } catch (error) {
      if (error instanceof Refusal && error.code === NOT_FOUND) return [];
      throw error;
    }
  }

  /** What a turn of this session tells while it lasts. */
  hear(event) {
    switch (event.kind) {
      case "assistant:text":
        this.#open();
        this.#status.textContent = "";
        this.#text.appendData(plain(event.text));
        break;
      case "start":
        this.#open();
        this.#status.textContent = "thinking …";
        this.refresh();
        break;
      case "tool:start":
        this.#open();
        this.refresh().then(() => this.#text?.replaceData(0, this.#text.length, ""));
        this.#status.textContent = plain(`using ${event.text} …`);
        break;
      case "usage":
        this.#open();
        this.#status.textContent = "working …";
        break;
      case "retry":
        this.#open();
        this.#status.textContent = plain(`trying again: ${event.text}`);
        break;
      case "tool:end":
        this.refresh();
        break;
      case "error":
        this.refresh().then(() => { this.#quieten(true); this.#failed(event.text); });
        break;
      case "end":
      case "interrupt":
        this.refresh().then(() => this.#quieten(true));
        break;
    }
    this.parts.moved?.();
  }

  /** A call of this session waits for a person. */
  awaits() {
    this.#open();
    this.#status.textContent = "waiting for you …";
    this.parts.moved?.();
  }

  /** A turn came to nothing, and is tried again. */
  #failed(why) {
    const told = el("p", { class: "error" }, `That failed: ${why}`);
    this.parts.live.replaceChildren(told, el("p", { class: "muted" }, "It is tried again by itself, until it works or is stopped."));
    this.parts.live.hidden = false;
    this.parts.moved?.();
  }

  /** Nothing is known of what is being said: it will be in the entries. */
  hush() { this.#quieten(true); }

  #open() {
    if (this.#text !== null) return;
    this.#text = document.createTextNode("");
    this.#status = el("p", { class: "muted" });
    const said = words("");
    said.append(this.#text);
    this.parts.live.replaceChildren(el("p", { class: "who" }, "now"), said, this.#status);
    this.parts.live.dataset.busy = "";
    this.parts.live.hidden = false;
  }

  /** What was being said is an entry now; `over`: and the turn has ended. */
  #quieten(over) {
    if (this.#text === null) return;
    this.#text.data = "";
    if (!over) return;
    this.#text = this.#status = null;
    delete this.parts.live.dataset.busy;
    this.parts.live.hidden = true;
    this.parts.live.replaceChildren();
  }
}

/** One entry, for reading. */
function shown(entry, [asker, answerer]) {
  const at = { "data-seq": entry.seq, title: clock(entry.at) };
  if (entry.role === "assistant") return assistant(entry, at, answerer);
  if (entry.role === "user" && SAID.has(entry.kind)) {
    return el("li", { class: "entry", "data-role": "user", ...at }, el("p", { class: "who" }, asker), words(entry.text));
  }
  const name = entry.role === "tool" ? `${entry.kind || "tool"} answered` : entry.role === "event" ? "arrived" : entry.kind || "note";
  return el("li", { class: "entry", "data-role": "quiet", ...at }, folded(name, entry.text));
}

function assistant(entry, at, answerer) {
  const calls = entry.calls.map((text) => folded("calls", text));
  if (entry.text === "" || SILENT.has(entry.text.trim())) {
    const nothing = entry.text === "" ? [] : [el("span", { class: "muted" }, "(nothing to say)")];
    return el("li", { class: "entry", "data-role": "quiet", ...at }, ...nothing, ...calls);
  }
  return el("li", { class: "entry", "data-role": "assistant", ...at }, el("p", { class: "who" }, answerer), words(entry.text), ...calls);
}

/** A line of it, and all of it when opened. */
function folded(name, text) {
  const line = text.split("\n").find((one) => one.trim() !== "") ?? "";
  const short = line.length > 100 ? `${line.slice(0, 100)} …` : line;
  if (short === text.trim()) return el("div", {}, `${name}: ${short}`);
  return el("details", {}, el("summary", {}, `${name}: ${short}`), el("pre", { dir: "auto" }, text));
}
