// The frame: signing in and out, the sidebar, top bar and tabs, which view is shown, banners and keys.
//
// A view is a module with two exports. `title(params, shared)` is its name, for the tab and the top bar. `mount(root,
// params, shared)` draws it into `root` and answers a function that ends it. `params` are the parts of the address
// behind the view's name, decoded. `shared` is the same for all views; see `Shared` below.

import { tick } from "./cards.js";
import { button, byId, el, fill, icon, refill, set, setTitle, write } from "./dom.js";
import { clock, plural } from "./format.js";
import { call, endSignIn, Feed, forget, hurryChanges, isSignedIn, lateChanges, onSignInElsewhere, signInByCode, Unauthorised, Uncertain, Unreachable } from "./gateway.js";
import * as keys from "./keys.js";
import * as layers from "./layers.js";
import { chatPath, MAIN, newKey } from "./names.js";
import { openPalette } from "./palette.js";
import { showSignIn } from "./signin.js";
import { isHere, sidebar } from "./side.js";
import { isRun, Store } from "./store.js";
import { isOn, paint } from "./theme.js";
import { sendKept } from "./transcript.js";
import * as agents from "./agents.js";
import * as chat from "./chat.js";
import * as health from "./health.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import * as settings from "./settings.js";
import * as undelivered from "./undelivered.js";
import * as you from "./you.js";

/** @typedef {object} Shared
 * @property {Store} store the page's copy of the state folder; `store.subscribe(draw)`, `store.everySecond(tick)`,
 *   `store.listen(hear)`
 * @property {(table: Record<string, (event: KeyboardEvent) => void>) => () => void} keys bind keys while the view is
 *   shown
 * @property {() => void} retitle the view's title has changed
 * @property {[string, string, () => void][]} actions label, icon and function of each action of the view, for the search
 * @property {Map<string, unknown>} kept values that views keep between two mounts, each by a unique name
 */

const VIEWS = { chat, runs, run, you, undelivered, agents, health, settings };
const TABS = [["chat", "Chat", "chat"], ["runs", "Runs", "runs"], ["you", "For you", "you"], ["undelivered", "Undelivered", "mail"], ["health", "Health", "pulse"]];
const WHY = "fledge.why";
const ENDED = "This browser is not signed in any more.";

/** The page after sign-in: the frame, the store, the feed and the view that is shown. */
class Page {
  #unmount = () => {};
  #view = "";
  #params = [];
  #noticed = 0;
  #chat = MAIN; // the conversation that was shown last

  constructor() {
    this.store = new Store();
    this.shared = { store: this.store, keys: keys.bind, retitle: () => this.#draw(), actions: [], kept: new Map() };
    this.side = sidebar(this.store, { search: () => this.search(), begin: () => this.begin(), closeDrawer: () => drawer(false), signOut: () => signOut() });
    this.#build();
    this.feed = new Feed(
      (event) => this.store.hear(event),
      (state, retryAt) => this.store.connected(state, retryAt),
      () => leave(ENDED));
    this.store.subscribe(() => this.#draw());
    this.store.everySecond(() => {
      tick();
      if (this.store.connection.state !== "connected") this.#draw();
    });
    keys.bind({
      "?": keys.help, c: () => this.begin(), n: () => this.next(),
      "g c": () => go(chatPath(this.#chat)), "g r": () => go("#/runs"), "g y": () => go("#/you"), "g u": () => go("#/undelivered"),
      "g a": () => go("#/agents"), "g h": () => go("#/health"), "g s": () => go("#/settings"),
    });
    this.route();
    this.feed.run();
  }

  #build() {
    this.title = el("span", { class: "toptitle clip" });
    this.bell = el("a", { class: "btn ghost", href: "#/you" });
    this.banner = el("div", { class: "bannerline bad", id: "offline", role: "alert", hidden: true });
    this.main = el("main", { id: "main", tabindex: "-1" });
    this.tabs = TABS.map(([id, words, ico]) => {
      const badge = el("span", { class: "badge hot", hidden: true });
      return { id, badge, link: el("a", { href: `#/${id}` }, icon(ico, 20), badge, el("span", null, words)) };
    });
    const top = el("header", { class: "top" },
      button("", { kind: "ghost open-side", ico: "menu", label: "Open navigation", act: () => drawer(true) }),
      this.title, el("span", { class: "grow" }), this.bell,
      button("", { kind: "ghost", ico: "search", label: "Search everything", act: () => this.search() }));
    this.app = el("div", { class: "app", id: "app" }, this.side.element,
      el("div", { class: "scrim", on: { click: () => drawer(false) } }),
      el("div", { class: "mid" }, top, this.banner, this.main),
      el("nav", { class: "tabs", "aria-label": "Views, short" }, this.tabs.map(({ link }) => link)));
    byId("root").replaceChildren(this.app);
  }

  /** Show the view that the address names. */
  route() {
    const [, name, ...rest] = location.hash.split("/");
    let params;
    try { params = rest.map(decodeURIComponent); } catch { this.#redirect(chatPath(MAIN)); return; }
    if (name === "chat" && isRun(params[0] ?? "")) { this.#redirect(`#/run/${rest[0]}`); return; }
    const view = Object.hasOwn(VIEWS, name ?? "") ? name : "chat";
    if (view === "chat" && !params[0]) { this.#redirect(chatPath(this.#chat)); return; }
    if (view === "chat") this.#chat = params[0];
    if (view === "run" && !params[0]) { this.#redirect("#/runs"); return; }
    drawer(false);
    layers.close();
    this.#unmount();
    this.#view = view;
    this.#params = params;
    this.app.dataset.view = view;
    fill(this.main);
    this.shared.actions = [];
    this.#unmount = VIEWS[view].mount(this.main, params, this.shared);
    this.#draw();
  }

  #redirect(hash) {
    history.replaceState(null, "", hash);
    this.route();
  }

  /** Begin a conversation in the folder of the one that was shown last, and go to its page, which is still empty. */
  begin() {
    const key = newKey();
    const folder = this.store.conversations.get(this.#chat)?.workspace;
    if (folder) this.shared.kept.set(`folder ${key}`, folder);
    go(chatPath(key));
    addEventListener("hashchange", () => byId("say")?.focus(), { once: true });
  }

  search() {
    openPalette(this.store, [...this.shared.actions, ["New conversation", "plus", () => this.begin()], ["Keys", "json", keys.help], ["Sign out", "out", () => signOut()]]);
  }

  /** Focus the next card that waits for a person: the one after the focused card, else the first. */
  next() {
    const cards = [...document.querySelectorAll(".card.ask:not(.answered)")];
    if (!cards.length) { if (this.store.waiting) go("#/you"); return; }
    cards[(cards.indexOf(document.activeElement) + 1) % cards.length].focus();
  }

  #draw() {
    const { store } = this;
    const name = VIEWS[this.#view].title(this.#params, this.shared);
    const waiting = store.waiting;
    setTitle(`${waiting ? `(${waiting}) ` : ""}${name} · fledge`);
    write(this.title, name);
    this.side.draw(this.#view, this.#params[0] ?? "");
    for (const { id, link, badge } of this.tabs) {
      if (isHere(id, this.#view)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      badge.hidden = id !== "you" || waiting === 0;
      write(badge, String(waiting));
    }
    set(this.bell, "aria-label", `${waiting} wait for you`);
    refill(this.bell, icon("you"), waiting > 0 && el("span", { class: "badge hot" }, String(waiting)));
    this.#drawBanner();
    this.#notify(waiting);
  }

  #drawBanner() {
    const { state, retryAt, asOf } = this.store.connection;
    if (state === "connected") this.isAway = false;
    if (state === "waiting") this.isAway = true;
    this.banner.hidden = !this.isAway;
    if (!this.isAway) { fill(this.banner); this.countdown = null; return; }
    if (!this.countdown) {
      this.countdown = el("span", { "aria-live": "off" });
      fill(this.banner, icon("bolt"), el("span", { class: "grow" }, el("b", null, "The gateway does not answer."), ` What you see is as of ${clock(asOf)}. No run is lost: each goes on where it was. `, this.countdown),
        button("Try now", { kind: "small", ico: "retry", act: () => this.feed.hurry() }));
    }
    const words = state === "connecting" ? "Trying …" : `Trying again in ${Math.max(1, Math.ceil((retryAt - performance.now()) / 1000))} s.`;
    write(this.countdown, words);
  }

  /** Show a browser notification if more waits than before and the tab is hidden; never with the text of a call. */
  #notify(waiting) {
    const isMore = waiting > this.#noticed;
    this.#noticed = waiting;
    if (!isMore || !document.hidden || !isOn("notices") || globalThis.Notification?.permission !== "granted") return;
    new Notification("fledge", { body: `${plural(waiting, "thing waits", "things wait")} for you`, tag: "fledge" });
  }

  failed(error, again) {
    if (error.name === "AbortError") return; // the person gave it up
    if (error instanceof Unauthorised) { leave(ENDED); return; }
    if (error instanceof Unreachable && this.store.connection.state !== "connected") return; // the banner says it
    showError(error.message, error instanceof Uncertain ? again : null);
  }

  end() {
    this.#unmount();
    this.store.end();
    this.feed.end();
  }
}

const go = (hash) => { location.hash = hash; };

/** Open or close the navigation on a phone. The page below it takes no focus while it is open. */
function drawer(isOpen) {
  const root = document.documentElement;
  if (root.hasAttribute("data-side") === isOpen) return;
  root.toggleAttribute("data-side", isOpen);
  for (const one of document.querySelectorAll(".mid, .tabs")) one.inert = isOpen;
  document.querySelector(isOpen ? ".close-side" : ".open-side")?.focus();
}

/** Show an error message until it is closed, with a button that calls `again` if that is given. */
function showError(words, again = null) {
  const box = byId("alert");
  const end = button("", { kind: "ghost tiny", ico: "x", label: "Close this message", act: () => { box.hidden = true; } });
  refill(box, el("span", { class: "grow" }, words), again && button("Try again", { kind: "small", ico: "retry", act: () => { box.hidden = true; return again(); } }), end);
  box.hidden = false;
}

/** Show that what the person did has not reached the gateway yet. */
function drawLate() {
  const box = byId("late");
  box.hidden = lateChanges() === 0;
  if (box.hidden || box.firstChild) return;
  fill(box, icon("bolt"), el("span", { class: "grow" }, "What you did has not reached the gateway yet. It is sent again until it has."),
    button("Try now", { kind: "small", ico: "retry", act: hurryChanges }));
}

let page = null;

async function signOut() {
  const isTold = await endSignIn();
  leave(isTold ? "" : "You are signed out here. The gateway could not be told: end this sign-in in the Settings of another browser, or wait 30 days.");
}

/** Show the form for signing in, with the reason. */
function leave(why) {
  forget();
  page?.end();
  page = null;
  if (why) sessionStorage.setItem(WHY, why);
  location.reload(); // nothing that was shown stays in this tab
}

/** Show the page: the view that its address names, else the conversation that was active last. */
async function show() {
  if (location.hash === "") {
    const { rows } = await call("sessions.query", { kinds: ["main", "named"], limit: 1 }).catch(() => ({ rows: [] })); // the banner says why
    history.replaceState(null, "", chatPath(rows[0]?.key ?? MAIN));
  }
  page = new Page();
  sendKept(page.shared);
  byId("say")?.focus();
}

addEventListener("failure", ({ detail: { error, again } }) => (page ? page.failed(error, again) : showError(error.message)));
addEventListener("late", drawLate);
addEventListener("hashchange", () => page?.route());
addEventListener("online", () => page?.feed.hurry());
document.addEventListener("visibilitychange", () => { if (!document.hidden) page?.feed.hurry(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main")?.focus(); });
keys.listen(() => page?.search(), () => drawer(false));
paint();
onSignInElsewhere(() => { if (page && !isSignedIn()) leave(ENDED); else if (!page && isSignedIn()) location.reload(); });

async function begin() {
  let why = sessionStorage.getItem(WHY) ?? "";
  sessionStorage.removeItem(WHY);
  try {
    await signInByCode();
  } catch (error) {
    why = `${error.message}.`;
  }
  if (isSignedIn()) await show();
  else showSignIn(byId("root"), why, show);
}

begin();
