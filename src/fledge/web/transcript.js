// A transcript as the page holds it: entries by number, read page by page, so that none is there twice and none is left
// out, however often the feed breaks off. Besides the entries, it holds the live text of a turn, and messages that are
// on their way. It draws nothing; the chat and the page of a run do.
//
// A reading begins at the last reply if that may still change (its calls run), else at the last entry. If the last
// entry is not in the answer, the transcript is another one (it was deleted and begun again): it is read anew.

import { coalesced, fail } from "./dom.js";
import { call, change, NOT_FOUND, reading, Refusal, Uncertain, unique } from "./gateway.js";
import { present } from "./time.js";

const PAGE = 100;
const MOST = 500;
const MOST_HELD = 600; // entries, before the oldest are forgotten
const MOST_KEPT = 20; // transcripts that no view shows
const COMMAND_MS = 120_000; // some commands wait for an answer
const FILES_MS = 120_000; // they may be large, and the connection slow
const UNSENT = "fledge.unsent.";

/** True for a line or a command: it stands between entries and has no number of its own. */
const isBetween = (entry) => entry.type === "line" || entry.type === "command";

/** The key of an entry: its number; of a line or a command, its kind, session and time. */
export const keyOf = (entry) => (isBetween(entry) ? `${entry.type} ${entry.kind ?? ""} ${entry.sessionKey ?? ""} ${entry.at}` : `entry ${entry.seq}`);

const inOrder = (one, other) => one.seq - other.seq || Number(isBetween(one)) - Number(isBetween(other)) || one.at - other.at;

export class Transcript {
  /** Entries and lines in order. */
  entries = [];
  isLoaded = false;
  /** There are entries before the first. */
  hasOlder = false;
  /** True if the reader has gone back to earlier entries. */
  isReadBack = false;
  /** The present state of the turn; null if none is known. `text` is its live text, which follows the entry `after`;
   * `begins` and `ends` say which characters of the reply these are. */
  live = null;
  /** Messages of a person that are not entries yet, in order: `{id, text, files, runId, state, reason}`; the state is
   * sending, waiting (for the next try), sent, or refused with a reason. */
  unsent = [];
  /** Called with a message that the gateway has refused. */
  refused = () => {};
  /** The folder in which the conversation begins, if it has not begun and one was chosen. */
  folder = "";
  /** Answers to slash commands, as entries of the type `command`: only this page has them. */
  commands = [];
  #byKey = new Map();
  #changed = new Set();

  constructor(key) {
    this.key = key;
    const read = reading(() => this.#read());
    this.refresh = async () => { if (this.isShown || this.unsent.length) await read(); }; // else the next view reads it
    this.older = reading(() => this.#readOlder());
    this.unsent = this.#keptUnsent();
    this.#deliver();
  }

  /** Call `changed` after each change. Answers a function that ends this. */
  subscribe(changed) {
    this.#changed.add(changed);
    return () => this.#changed.delete(changed);
  }

  /** True if a view shows it. */
  get isShown() { return this.#changed.size > 0; }

  /** Entries, lines and answers to commands, in order. */
  get shown() { return this.commands.length ? [...this.entries, ...this.commands].sort(inOrder) : this.entries; }

  /** The entry of a number, if it is here. */
  entry(seq) { return this.#byKey.get(`entry ${seq}`); }

  // ---- entries

  get #last() { return this.entries.findLast((entry) => !isBetween(entry))?.seq ?? 0; }

  /** The number of the last entry that will not change any more. */
  get #settled() {
    const open = this.entries.findLast((entry) => entry.type === "reply");
    const isOpen = open?.calls?.some((one) => one.status === "running" || one.status === "asked");
    return (isOpen ? open.seq : this.#last) - 1;
  }

  async #read() {
    if (this.entries.length) {
      const last = this.#last;
      const isSame = await this.#readOn((page) => page.entries.some((entry) => entry.seq === last && !isBetween(entry)));
      if (isSame) return;
    }
    const page = await this.#ask({ limit: Math.min(MOST, Math.max(PAGE, this.entries.length)) });
    this.#byKey.clear();
    this.hasOlder = page.older;
    this.#take(page);
    this.isLoaded = true;
    this.#tell();
  }

  /** Read the new entries. False if the gateway has another transcript. */
  async #readOn(isSame) {
    for (let first = true; ; first = false) {
      const page = await this.#ask({ after: Math.max(0, first ? this.#settled : this.#last), limit: MOST });
      if (first && !isSame(page)) return false;
      this.#take(page);
      this.#tell();
      if (!page.newer) return true;
    }
  }

  async #readOlder() {
    const first = this.entries.find((entry) => !isBetween(entry));
    if (!first || !this.hasOlder) return;
    this.isReadBack = true;
    const page = await this.#ask({ before: first.seq, limit: PAGE });
    this.hasOlder = page.older;
    this.#take(page);
    this.#tell();
  }

  /** Forget the oldest entries of a long transcript: they can be read again. */
  forgetOldest() {
    if (this.entries.length <= MOST_HELD) return;
    this.entries = this.entries.slice(-MOST_HELD / 2);
    this.#byKey = new Map(this.entries.map((entry) => [keyOf(entry), entry]));
    this.hasOlder = true;
    this.isReadBack = false;
  }

  #take(page) {
    for (const entry of page.entries) this.#byKey.set(keyOf(entry), entry);
    this.entries = [...this.#byKey.values()].sort(inOrder);
    const arrived = new Set(page.entries.map((entry) => entry.runId).filter(Boolean));
    if (this.unsent.some((message) => arrived.has(message.runId))) this.#keepUnsent(this.unsent.filter((message) => !arrived.has(message.runId)));
    if (this.live && page.entries.some((entry) => entry.type === "reply" && entry.seq > this.live.after)) this.live = { ...this.live, text: "" };
  }

  async #ask(range) {
    try {
      return await call("sessions.history", { session: this.key, view: "entries", ...range });
    } catch (error) {
      if (error instanceof Refusal && error.code === NOT_FOUND) return { entries: [], first: 0, last: 0, older: false, newer: false };
      throw error;
    }
  }

  /** A whole entry: nothing in it is cut. */
  whole(seq) { return call("sessions.entry", { session: this.key, seq }); }

  // ---- events

  /** An event of the feed has come. */
  hear(event) {
    if (event.type === "connected" || event.type === "lost") {
      this.live = null; // the words that were missed are in the entries
      this.refresh();
    } else if (event.type === "row") {
      if (event.row.requester === this.key || event.row.sessionKey === this.key) this.refresh(); // there may be a new line
    } else if (event.type === "turn" && event.sessionKey === this.key) this.#turn(event);
  }

  #turn(event) {
    const live = this.live ?? { text: "", status: "", after: this.#last };
    switch (event.kind) {
      case "start":
      case "model:start":
        this.live = { text: "", status: "thinking …", after: event.entry ?? live.after };
        this.refresh();
        break;
      case "assistant:text":
        if (event.entry < this.#last) return; // the entry of this text is here already
        this.live = { ...grown(live, event), status: "" };
        break;
      case "tool:start":
        this.live = { ...live, status: `using ${event.text} …` };
        this.refresh();
        break;
      case "tool:end":
      case "usage":
        this.live = { ...live, status: "working …" };
        this.refresh();
        break;
      case "retry":
        this.live = { ...live, text: "", status: `trying again: ${event.text}` };
        break;
      case "error":
        this.live = null;
        this.refresh().then(() => { this.live = { text: "", status: "", after: this.#last, error: event.text, remedy: event.remedy ?? "" }; this.#tell(); });
        return;
      case "end":
      case "interrupt":
        this.refresh().then(() => { this.live = null; this.#tell(); });
        return;
    }
    this.#tell();
  }

  #tell() { for (const changed of [...this.#changed]) changed(); }

  // ---- messages and commands of the person

  /** Carry out a slash command. Its answer stands behind the entries that are there now. */
  async command(line) {
    const entry = { type: "command", seq: this.#last, at: present(), line, text: "", state: "running", again: null };
    this.commands.push(entry);
    await this.#carryOut(entry);
  }

  async #carryOut(entry) {
    Object.assign(entry, { text: "", state: "running", again: null });
    this.#tell();
    try {
      const { ok, text } = await change("slash.run", { session: this.key, line: entry.line }, { patienceMs: COMMAND_MS });
      Object.assign(entry, { text: text || "done", state: ok ? "ok" : "failed" });
    } catch (error) {
      Object.assign(entry, { text: error.message, state: "failed", again: error instanceof Uncertain ? () => this.#carryOut(entry) : null });
    }
    this.#tell();
    this.refresh();
  }

  /** Send a message, again until the gateway has it, and always with one idempotency key, so that it is read once.
   * Messages are sent in the order in which they were said. */
  say(text, files = []) {
    this.#keepUnsent([...this.unsent, { id: unique(), text, files, runId: "", state: "sending" }]);
    this.#tell();
    this.#deliver();
  }

  /** Send a message that was refused once more. */
  sayAgain(message) {
    this.#mark(message, { state: "sending" });
    this.#deliver();
  }

  /** Forget a message that was refused. */
  takeBack(message) {
    this.#keepUnsent(this.unsent.filter((one) => one !== message));
    this.#tell();
  }

  #deliver = coalesced(async () => {
    for (;;) {
      const next = this.unsent.find((message) => !message.runId && message.state !== "refused");
      if (!next) return;
      await this.#deliverOne(next);
    }
  });

  async #deliverOne(message) {
    const waits = () => this.#mark(message, { state: "waiting" });
    try {
      if (this.folder && !this.entries.length) await change("sessions.open", { session: this.key, folder: this.folder }, { waits });
      const given = { message: message.text, session: this.key, idempotencyKey: message.id, ...carried(message.files) };
      const { runId } = await change("agent", given, { waits, patienceMs: message.files.length ? FILES_MS : undefined });
      this.#mark(message, { runId, state: "sent" });
      if (this.entries.some((entry) => entry.runId === runId)) this.takeBack(message);
      this.refresh();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.#mark(message, { state: "refused", reason: error.message });
      this.refused(message);
      fail(error);
    }
  }

  #mark(message, state) {
    Object.assign(message, state);
    this.#keepUnsent(this.unsent);
    this.#tell();
  }

  /** A message that the gateway does not have yet survives a reload of the page; files are too large for that. */
  #keepUnsent(messages) {
    this.unsent = messages;
    const kept = messages.filter((message) => !message.runId && !message.files.length).map(({ id, text }) => ({ id, text }));
    try {
      if (kept.length) sessionStorage.setItem(UNSENT + this.key, JSON.stringify(kept));
      else sessionStorage.removeItem(UNSENT + this.key);
    } catch { /* too long to be kept: it is sent all the same, and would only miss a reload */ }
  }

  #keptUnsent() {
    const kept = JSON.parse(sessionStorage.getItem(UNSENT + this.key) ?? "[]");
    return kept.map((message) => ({ ...message, files: [], runId: "", state: "sending" }));
  }
}

/** The live text with one more piece of it. `offset` says how many characters of the reply come before the piece; it may
 * come twice, begin before the text that is here (it is the text so far), or replace the rest (the reply began anew). */
function grown(live, { text, offset = 0, entry }) {
  const piece = [...text], end = offset + piece.length; // characters as the gateway counts them, not UTF-16 units
  const isSame = live.text !== "" && live.after === entry;
  const grownTo = (words, begins, ends) => ({ ...live, text: words, begins, ends, after: entry });
  if (!isSame || offset > live.ends || end < live.begins) return grownTo(text, offset, end);
  if (offset === live.ends) return grownTo(live.text + text, live.begins, end);
  const has = [...live.text], from = Math.max(0, offset - live.begins), to = end - live.begins;
  const isOld = has.slice(from, to).join("") === piece.slice(Math.max(0, live.begins - offset), live.ends - offset).join("");
  const words = [...has.slice(0, from), ...piece, ...(isOld ? has.slice(to) : [])];
  return grownTo(words.join(""), Math.min(live.begins, offset), Math.min(live.begins, offset) + words.length);
}

/** Files of a message as the gateway takes them: images that a model is shown, and all others. */
function carried(files) {
  const images = files.filter((file) => file.isImage).map(({ name, data }) => ({ name, data }));
  const attachments = files.filter((file) => !file.isImage).map(({ name, data }) => ({ name, content: data, encoding: "base64" }));
  return { ...(images.length && { images }), ...(attachments.length && { attachments }) };
}

/** Send what was said in this tab before it was reloaded, in whichever conversation. */
export function sendKept(shared) {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(UNSENT)) transcriptOf(shared, name.slice(UNSENT.length));
}

/** The transcript of a session, for a view that subscribes to it. Those that were shown last are kept, and so is each
 * that has a message on its way. */
export function transcriptOf(shared, key) {
  if (!shared.kept.has("transcripts")) {
    shared.kept.set("transcripts", new Map());
    shared.store.listen((event) => { for (const transcript of [...shared.kept.get("transcripts").values()]) transcript.hear(event); });
  }
  const transcripts = shared.kept.get("transcripts");
  const found = transcripts.get(key) ?? new Transcript(key);
  transcripts.delete(key);
  transcripts.set(key, found); // moves to the end
  const idle = [...transcripts.values()].filter((transcript) => transcript !== found && !transcript.isShown && !transcript.unsent.length);
  for (const transcript of idle.slice(0, -MOST_KEPT)) transcripts.delete(transcript.key);
  return found;
}
