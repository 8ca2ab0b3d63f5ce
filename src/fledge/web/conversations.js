// Which conversation is talked in: the list of them, and beginning another.

import { call } from "./gateway.js";
import { byId, coalesced, el } from "./dom.js";

export const MAIN = "agent:main:main";
const MOST = 100;

/** True of the key of a run's own conversation, which has a page of its own. */
export const isRun = (key) => /^agent:[^:]+:(subagent|acp):/.test(key);

/** Where the page begins: in the conversation in which something happened last. */
export async function latest() {
  const rows = await call("sessions.list", { kinds: ["main", "named"], limit: 1 });
  return rows[0]?.key ?? MAIN;
}

/** A conversation as people call it: by its label, such as the name of its project folder, else by its key. */
export function named(key, label = "") {
  if (label) return label;
  const [, agent, ...rest] = key.split(":");
  const name = rest.join(":");
  return agent === "main" ? name : name === "main" ? agent : `${agent}: ${name}`;
}

export const chatLink = (key, more = {}) => el("a", { href: key === MAIN ? "#/chat" : `#/chat/${encodeURIComponent(key)}`, ...more }, named(key));

export class Conversations {
  #was = "";
  #chosen = MAIN;
  #rows = [];

  constructor(failed) {
    this.failed = failed;
    this.refresh = coalesced(() => this.#read(), failed);
    byId("conversation").onchange = (event) => { location.hash = chatLink(event.target.value).hash; };
    byId("begin").onclick = () => this.#ask(byId("begin-form").hidden);
    byId("begin-form").onsubmit = (event) => { event.preventDefault(); this.#begin(byId("begin-name")); };
  }

  /** This one is shown now. */
  choose(key) {
    this.#chosen = key;
    this.#show();
  }

  async #read() {
    this.#rows = await call("sessions.list", { kinds: ["main", "named"], limit: MOST });
    this.#show();
  }

  /** The latest first; one that was never spoken in is there while it is shown. */
  #show() {
    const keys = [...new Set([...this.#rows.map((row) => row.key), MAIN, this.#chosen])];
    const times = (label) => this.#rows.filter((row) => row.label === label).length;
    const labels = new Map(this.#rows.map((row) => [row.key, times(row.label) === 1 ? row.label : ""]));
    const busy = new Map(this.#rows.map((row) => [row.key, row.state === "idle" ? "" : " …"]));
    const late = this.#rows.find((row) => row.key === this.#chosen)?.unanswered ?? "";
    const is = JSON.stringify([keys, [...labels], [...busy], this.#chosen, late]);
    if (is === this.#was) return;
    this.#was = is;
    byId("unanswered").textContent = late && `${late}: it is tried again by itself`;
    byId("unanswered").hidden = late === "";
    byId("conversation").replaceChildren(...keys.map((key) =>
      el("option", { value: key, selected: key === this.#chosen }, named(key, labels.get(key)) + (busy.get(key) ?? ""))));
    byId("conversation").value = this.#chosen;
  }

  #ask(open) {
    byId("begin-form").hidden = !open;
    byId("begin").setAttribute("aria-expanded", String(open));
    if (open) byId("begin-name").focus();
  }

  #begin(box) {
    const name = box.value.trim();
    if (!/^[A-Za-z0-9][A-Za-z0-9._@+-]*$/.test(name)) {
      this.failed(new Error("a conversation's name begins with a letter or digit, and has only those and . _ @ + -"));
      box.focus();
      return;
    }
    box.value = "";
    this.#ask(false);
    location.hash = chatLink(`agent:main:${name}`).hash;
    byId("say").focus();
  }
}
