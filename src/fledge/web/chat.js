// A conversation: what was said, what is being said, and the box to say more in. What a person says is given a name of its
// own, so it can be sent again when the gateway was gone, and is heard once. Several may be open, and one is shown.

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
  #draft = "";

  constructor(key, failed) {
    this.key = key;
    this.failed = failed;
    this.scroll = byId("chat-scroll");
    this.earlier = el("button", { id: "earlier", type: "button", hidden: true, on: { click: () => this.#earlier() } }, "Show earlier");
    this.empty = el("p", { id: "chat-empty", class: "empty" }, "loading …");
    this.log = el("ol", { id: "chat-log", class: "log", role: "log", "aria-label": "Messages" });
    this.live = el("div", { id: "chat-live", class: "live", "aria-live": "off", hidden: true });
    this.unread = el("ol", { id: "chat-pending", class: "log", "aria-label": "Not yet read" });
    const parts = { log: this.log, live: this.live, names: ["you", "fledge"] };
    parts.grown = (entries, more) => this.#grown(entries, more);
    parts.moved = () => this.#follow();
    this.transcript = new Transcript(key, parts, failed);
    this.transcript.refresh();
  }

  /** From now on this conversation is the one that is shown and spoken to. */
  show() {
    const box = byId("say");
    box.value = this.#draft;
    this.scroll.replaceChildren(this.earlier, this.empty, this.log, this.live, this.unread);
    byId("composer").onsubmit = (event) => { event.preventDefault(); this.#submit(box); };
    box.onkeydown = (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.#submit(box); }
    };
    byId("stop").onclick = () => call("sessions.stop", { session: this.key }).catch(this.failed);
    byId("newest").onclick = () => this.bottom();
    this.scroll.onscroll = () => {
      this.#atEnd = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight < NEAR_PX;
      if (this.#atEnd) byId("newest").hidden = true;
    };
    this.bottom();
  }

  /** Another is shown now; what was typed here is kept. */
  hide() { this.#draft = byId("say").value; }

  get #isShown() { return this.log.isConnected; }

  bottom() {
    this.#atEnd = true;
    if (!this.#isShown) return;
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
    if (more) this.earlier.hidden = false;
    this.empty.textContent = "Nothing has been said yet. Say hello, or type /help.";
    this.empty.hidden = this.log.childElementCount > 0 || this.#pending.length > 0;
    this.#follow();
    if (this.#isShown && !this.#atEnd && entries.length) byId("newest").hidden = false;
  }

  async #earlier() {
    const before = this.scroll.scrollHeight;
    try {
      this.earlier.hidden = !(await this.transcript.earlier());
      this.scroll.scrollTop += this.scroll.scrollHeight - before;
    } catch (error) {
      this.failed(error);
    }
  }

  #submit(box) {
    const text = box.value.trim();
    if (text === "") return;
    box.value = "";
    this.empty.hidden = true;
    if (COMMAND.test(text)) this.#command(text);
    else this.#say(text);
  }

  async #command(line) {
    const result = el("pre", { dir: "auto" }, "…");
    const entry = el("li", { class: "entry", "data-role": "command" }, el("p", { class: "who" }, line), result);
    this.log.append(entry);
    this.bottom();
    let told;
    try {
      told = await call("slash.run", { session: this.key, line }, COMMAND_MS);
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
    this.unread.append(entry);
    this.bottom();
    const idempotencyKey = unique();
    for (;;) {
      try {
        await call("agent", { message: text, session: this.key, idempotencyKey });
        status.textContent = "sent, not yet read";
        return;
      } catch (error) {
        if (error instanceof Unreachable) {
          status.textContent = "not sent yet: waiting for the gateway";
          await new Promise((go) => this.#connected.push(go));
          continue;
        }
        this.#drop(saying);
        if (this.#isShown) byId("say").value ||= text;
        else this.#draft ||= text;
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
