// The page: signing in and out, which view is shown, and who is told of what happens.

import { Feed, forget, isSignedIn, signIn, Unauthorised, Unreachable } from "./gateway.js";
import { byId, plain } from "./dom.js";
import { Chat } from "./chat.js";
import { RunPage } from "./run.js";
import { mark, Runs } from "./runs.js";
import { Undelivered } from "./undelivered.js";
import { Waiting } from "./waiting.js";

const MAIN = "agent:main:main";
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
    this.chat = new Chat(MAIN, failed);
    this.runs = new Runs(failed);
    this.undelivered = new Undelivered(failed);
    this.waiting = new Waiting(MAIN, failed, (number) => { document.title = number ? `(${number}) fledge` : "fledge"; });
    this.run = null;
    this.feed = new Feed((event) => this.hear(event), connection, () => signOut("The gateway does not take this token any more."));
    this.route();
    this.feed.run();
  }

  hear(event) {
    switch (event.type) {
      case "connected":
        this.chat.reconnected();
        this.run?.transcript.hush();
        this.run?.transcript.refresh();
        this.changed();
        break;
      case "turn":
        if (event.sessionKey === MAIN) this.chat.transcript.hear(event);
        if (event.sessionKey === this.run?.key) this.run.transcript.hear(event);
        if (event.kind === "end" || event.kind === "error") this.changed();
        break;
      case "approvals":
        this.waiting.refresh();
        break;
      case "lost":
        this.chat.transcript.refresh();
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
      await Promise.all([this.runs.refresh(), this.waiting.refresh(), this.undelivered.refresh(), this.run?.refresh()]);
      this.#pauseMs = Math.max(CALM_MS, 4 * (performance.now() - began));
      this.#lookedAt = performance.now();
      this.#soon = 0;
      if (this.#again) this.changed();
    }, Math.max(SOON_MS, this.#lookedAt + this.#pauseMs - performance.now()));
  }

  route() {
    const [, name, rest] = location.hash.split("/");
    const isRun = name === "run" && rest;
    const view = isRun ? "run" : VIEWS.includes(name) ? name : "chat";
    byId("app").dataset.view = view;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    let key = "";
    try { key = isRun ? decodeURIComponent(rest) : ""; } catch { location.hash = "#/chat"; }
    if (!key) this.run = null;
    else if (this.run?.key !== key) this.run = new RunPage(key, (error) => this.failed(error));
    if (view === "chat") this.chat.bottom();
    mark();
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

function show() {
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
  show();
}

byId("signin-form").addEventListener("submit", submit);
byId("signout").addEventListener("click", () => signOut(""));
byId("reconnect").addEventListener("click", () => page?.feed.hurry());
byId("alert-close").addEventListener("click", () => { byId("alert").hidden = true; });
addEventListener("hashchange", () => page?.route());
addEventListener("online", () => page?.feed.hurry());
document.addEventListener("visibilitychange", () => { if (!document.hidden) page?.feed.hurry(); });

if (isSignedIn()) show();
else {
  byId("signin").hidden = false;
  byId("signin-error").textContent = sessionStorage.getItem("fledge.why") ?? "";
  sessionStorage.removeItem("fledge.why");
  byId("token").focus();
}
