// The main conversation: what was said, what is being said, and the box to say more in. What a person says is given a
// name of its own, so it can be sent again when the gateway was gone, and is heard once.

import { call, Unauthorised, unique, Unreachable } from "./gateway.js";
import { byId, el, words } from "./dom.js";
import { Transcript } from "./transcript.js";

const NEAR_PX = 80;
const COMMAND_MS = 120_000; // some wait for an answer
const COMMAND = /^\/[a-zA-Z]+(\s|$)/; // as cli/slash.py says: a path at the beginning stays a message

export class Chat {
  #pending = [];
  #connected = [];
  #atEnd = true;

  constructor(key, failed) {
    this.key = key;
    this.failed = failed;
    this.scroll = byId("chat-scroll");
    const parts = { log: byId("chat-log"), live: byId("chat-live"), names: ["you", "fledge"] };
    parts.grown = (entries, more) => this.#grown(entries, more);
    parts.moved = () => this.#follow();
    this.transcript = new Transcript(key, parts, failed);
    const box = byId("say");
    byId("composer").onsubmit = (event) => { event.preventDefault(); this.#submit(box); };
    box.onkeydown = (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.#submit(box); }
    };
    byId("stop").onclick = () => call("sessions.stop", { key }).catch(failed);
    byId("newest").onclick = () => this.bottom();
    byId("earlier").onclick = () => this.#earlier();
    this.scroll.onscroll = () => {
      this.#atEnd = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < NEAR_PX;
      if (this.#atEnd) byId("newest").hidden = true;
    };
  }

  bottom() {
    this.#atEnd = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    byId("newest").hidden = true;
  }

  /** The gateway answers again: what waits to be sent is sent. */
  reconnected() {
    for (const go of this.#connected.splice(0)) go();
    this.transcript.hush();
    return this.transcript.refresh();
  }

  /** Stay at the end, if that is where the reader is. */
  #follow() {
    if (this.#atEnd) this.bottom();
  }

  #grown(entries, more) {
    for (const entry of entries) if (entry.role === "user") this.#read(entry.text);
    if (more) byId("earlier").hidden = false;
    byId("chat-empty").textContent = "Nothing has been said yet. Say hello, or type /help.";
    byId("chat-empty").hidden = byId("chat-log").childElementCount > 0 || this.#pending.length > 0;
    this.#follow();
    if (!this.#atEnd && entries.length) byId("newest").hidden = false;
  }

  async #earlier() {
    const before = this.scroll.scrollHeight;
    try {
      byId("earlier").hidden = !(await this.transcript.earlier());
      this.scroll.scrollTop += this.scroll.scrollHeight - before;
    } catch (error) {
      this.failed(error);
    }
  }

  #submit(box) {
    const text = box.value.trim();
    if (text === "") return;
    box.value = "";
    byId("chat-empty").hidden = true;
    if (COMMAND.test(text)) this.#command(text);
    else this.#say(text);
  }

  async #command(line) {
    const result = el("pre", { dir: "auto" }, "…");
    const entry = el("li", { class: "entry", "data-role": "command" }, el("p", { class: "who" }, line), result);
    byId("chat-log").append(entry);
    this.bottom();
    let told;
    try {
      told = await call("commands.run", { sessionKey: this.key, line }, COMMAND_MS);
    } catch (error) {
      if (error instanceof Unauthorised) return this.failed(error);
      told = { ok: false, text: error.message };
    }
    if (!told.ok) entry.dataset.failed = "";
    result.replaceWith(el("pre", { dir: "auto" }, told.text || "done"));
    this.bottom();
  }

  async #say(text) {
    const status = el("p", { class: "who" }, "sending …");
    const entry = el("li", { class: "entry", "data-role": "user" }, status, words(text));
    const saying = { text, entry };
    this.#pending.push(saying);
    byId("chat-pending").append(entry);
    this.bottom();
    const idempotencyKey = unique();
    for (;;) {
      try {
        await call("agent", { message: text, sessionKey: this.key, idempotencyKey });
        status.textContent = "sent, not yet read";
        return;
      } catch (error) {
        if (error instanceof Unreachable) {
          status.textContent = "not sent yet: waiting for the gateway";
          await new Promise((go) => this.#connected.push(go));
          continue;
        }
        this.#drop(saying);
        byId("say").value ||= text;
        this.failed(error);
        return;
      }
    }
  }

  /** What was said has become an entry. */
  #read(text) {
    for (const saying of this.#pending.filter((one) => text.includes(one.text))) this.#drop(saying);
  }

  #drop(saying) {
    this.#pending = this.#pending.filter((one) => one !== saying);
    saying.entry.remove();
  }
}
