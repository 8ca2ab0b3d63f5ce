// The page: signing in and out, which view is shown, and who is told of what happens.

import { Feed, forget, isSignedIn, signIn, signInByCode, Unauthorised, Unreachable } from "./gateway.js";
import { byId, plain } from "./dom.js";
import { Chat } from "./chat.js";
import { Conversations, MAIN, isRun, latest } from "./conversations.js";
import { RunPage } from "./run.js";
import { mark, Runs } from "./runs.js";
import { Undelivered } from "./undelivered.js";
import { Waiting } from "./waiting.js";

const VIEWS = ["chat", "runs", "undelivered"];
const SOON_MS = 50;
const CALM_MS = 400; // between two looks; more if a look takes long

let page = null;

/** Everything that is there once somebody has signed in. */
class Page {
  #soon = 0;
  #again = false;
  #lookedAt = -CALM_MS;
  #pauseMs = CALM_MS;

  constructor() {
    const failed = (error) => this.failed(error);
    this.chats = new Map(); // every conversation that was opened on this page, by its key
    this.chat = null;
    this.conversations = new Conversations(failed);
    this.runs = new Runs(failed);
    this.undelivered = new Undelivered(failed);
    this.waiting = new Waiting(
      failed,
      (number) => { document.title = number ? `(${number}) fledge` : "fledge"; },
      (keys) => { for (const [key, chat] of this.chats) if (keys.has(key)) chat.transcript.awaits(); });
    this.run = null;
    this.feed = new Feed((event) => this.hear(event), connection, () => signOut("The gateway does not take this token any more."));
    this.route();
    this.feed.run();
  }

  hear(event) {
    switch (event.type) {
      case "connected":
        for (const chat of this.chats.values()) chat.reconnected();
        this.run?.transcript.hush();
        this.run?.transcript.refresh();
        this.changed();
        break;
      case "turn":
        this.chats.get(event.sessionKey)?.transcript.hear(event);
        if (event.sessionKey === this.run?.key) this.run.transcript.hear(event);
        if (event.kind === "end" || event.kind === "error") this.changed();
        break;
      case "approvals":
        this.waiting.refresh();
        break;
      case "lost":
        for (const chat of this.chats.values()) chat.transcript.refresh();
        this.run?.transcript.refresh();
        this.changed();
        break;
      case "run":
        this.changed();
        break;
    }
  }

  /** Runs have changed: look again, soon, however many events say so. */
  changed() {
    if (this.#soon) { this.#again = true; return; }
    this.#soon = setTimeout(async () => {
      this.#again = false;
      const began = performance.now();
      await Promise.all([this.conversations.refresh(), this.runs.refresh(), this.waiting.refresh(), this.undelivered.refresh(), this.run?.refresh()]);
      this.#pauseMs = Math.max(CALM_MS, 4 * (performance.now() - began));
      this.#lookedAt = performance.now();
      this.#soon = 0;
      if (this.#again) this.changed();
    }, Math.max(SOON_MS, this.#lookedAt + this.#pauseMs - performance.now()));
  }

  route() {
    const [, name, rest] = location.hash.split("/");
    let key = "";
    try { key = decodeURIComponent(rest ?? ""); } catch { location.hash = "#/chat"; return; }
    if (name === "chat" && isRun(key)) { location.replace(`#/run/${rest}`); return; }
    const view = name === "run" && key ? "run" : VIEWS.includes(name) ? name : "chat";
    byId("app").dataset.view = view;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (view === "undelivered") this.undelivered.refresh(); // no event tells of a message that was given up
    if (view !== "run") this.run = null;
    else if (this.run?.key !== key) this.run = new RunPage(key, (error) => this.failed(error));
    if (view === "chat" || this.chat === null) this.talk(view === "chat" && key ? key : MAIN);
    mark();
  }

  /** Show this conversation. */
  talk(key) {
    if (this.chat?.key !== key) {
      this.chat?.hide();
      if (!this.chats.has(key)) this.chats.set(key, new Chat(key, (error) => this.failed(error)));
      this.chat = this.chats.get(key);
      this.chat.show();
      this.conversations.choose(key);
    }
    this.chat.bottom();
  }

  failed(error) {
    if (page !== this) return;
    if (error instanceof Unauthorised) { signOut("The gateway does not take this token any more."); return; }
    if (error instanceof Unreachable && byId("connection").dataset.state !== "connected") return; // it is said above
    byId("alert-words").textContent = plain(error.message);
    byId("alert").hidden = false;
  }

  end() {
    clearTimeout(this.#soon);
    this.feed.end();
  }
}

function connection(word, seconds) {
  const told = { connecting: "connecting …", connected: "connected", waiting: `not connected; again in ${Math.ceil(seconds)} s` };
  byId("connection").dataset.state = word;
  byId("connection-words").textContent = told[word];
  byId("reconnect").hidden = word !== "waiting";
}

async function show() {
  if (location.hash === "") {
    const key = await latest().catch(() => MAIN); // the page says itself that nobody answers
    if (key !== MAIN) history.replaceState(null, "", `#/chat/${encodeURIComponent(key)}`);
  }
  byId("signin").hidden = true;
  byId("app").hidden = false;
  page = new Page();
  if (byId("app").dataset.view === "chat") byId("say").focus();
}

function signOut(why) {
  forget();
  page?.end();
  page = null;
  if (why) sessionStorage.setItem("fledge.why", why);
  location.reload(); // nothing that was shown stays in this tab
}

async function submit(event) {
  event.preventDefault();
  const box = byId("token");
  const say = byId("signin-error");
  say.textContent = "";
  try {
    await signIn(box.value.trim());
  } catch (error) {
    say.textContent = error instanceof Unauthorised ? "That is not the token of this gateway." : plain(`${error.message}.`);
    box.select();
    return;
  }
  box.value = "";
  await show();
}

byId("signin-form").addEventListener("submit", submit);
byId("signout").addEventListener("click", () => signOut(""));
byId("reconnect").addEventListener("click", () => page?.feed.hurry());
byId("alert-close").addEventListener("click", () => { byId("alert").hidden = true; });
addEventListener("hashchange", () => page?.route());
addEventListener("online", () => page?.feed.hurry());
document.addEventListener("visibilitychange", () => { if (!document.hidden) page?.feed.hurry(); });

async function begin() {
  let why = sessionStorage.getItem("fledge.why") ?? "";
  sessionStorage.removeItem("fledge.why");
  try {
    await signInByCode();
  } catch (error) {
    why = plain(`${error.message}.`);
  }
  if (isSignedIn()) { show(); return; }
  byId("signin").hidden = false;
  byId("signin-error").textContent = why;
  byId("token").focus();
}

begin();
