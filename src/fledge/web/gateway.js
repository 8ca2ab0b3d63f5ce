// The gateway: calls of its methods, and the feed of events. Signing in shows the gateway's token once, and gives this
// browser a credential of its own, which it keeps until it is signed out. Both go into the header of a request and
// nowhere else. Every request is a POST: the browser then names the origin of this page, without which the credential
// counts for nothing. This file knows nothing of the page.

import { coalesced, set } from "./dom.js";
import { released } from "./press.js";
import { learnTime } from "./time.js";

const KEPT = "fledge.signin";
const CALL_MS = 30_000;
const SIGN_OUT_MS = 3000;
const SILENT_MS = 45_000; // the feed sends something at least every 15 s, even if there is no event
const AGAIN_MS = 1000; // until a reading that failed is tried again
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 15_000;

/** This browser is not signed in, or the token is wrong. */
export class Unauthorised extends Error {}
/** The gateway does not answer, or cannot now: the request may be tried again. `isRefused`: it was
 * surely not carried out. */
export class Unreachable extends Error {
  constructor(message, isRefused = false) { super(message); this.isRefused = isRefused; }
}
/** It is not known whether a change was carried out, and a second one would not be the same: a person decides. */
export class Uncertain extends Error {
  constructor({ message }) { super(`It is not known whether this reached the gateway (${message}). Look before you do it again.`); }
}
/** The gateway refused the request; the message is its reason. */
export class Refusal extends Error {
  constructor(message, code) { super(message); this.code = code; }
}
export const NOT_FOUND = -32001;

const credential = () => localStorage.getItem(KEPT) ?? "";

export const isSignedIn = () => credential() !== "";

/** The id under which the gateway lists this browser. */
export const ownSignIn = () => credential().split(".")[0];

/** Call `act` once another tab has signed this browser in or out. */
export const onSignInElsewhere = (act) => addEventListener("storage", ({ key }) => { if (key === KEPT || key === null) act(); });

/** Forget the sign-in, and everything that this tab keeps. */
export function forget() {
  localStorage.removeItem(KEPT);
  sessionStorage.clear();
}

/** Have the gateway end the sign-in of this browser. False if it could not be told: then the sign-in stays listed. */
export async function endSignIn() {
  try {
    await change("signins.end", { id: ownSignIn() }, { patienceMs: SIGN_OUT_MS, signal: AbortSignal.timeout(SIGN_OUT_MS) });
  } catch (error) {
    return error instanceof Unauthorised || error instanceof Refusal; // it has ended before
  }
  return true;
}

/** Sign this browser in with the token. Throws if the gateway does not accept it. */
export async function signIn(token) {
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Unauthorised("no token looks like that");
  await logIn({}, { authorization: `Bearer ${token}` });
}

/** Sign in with the one-time code of `fledge page`. The address bar loses it first: it must not stay in the history. */
export async function signInByCode() {
  const code = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
  if (code === undefined) return;
  history.replaceState(null, "", location.pathname);
  await logIn({ code }, {});
}

async function logIn(given, proof) {
  let response;
  let told;
  try {
    response = await post("/login", { headers: { "content-type": "application/json", ...proof }, body: JSON.stringify(given), signal: AbortSignal.timeout(CALL_MS) });
    told = await response.json();
  } catch {
    throw new Unreachable("the gateway does not answer");
  }
  if (!response.ok) throw new (response.status === 401 || response.status === 403 ? Unauthorised : Unreachable)(String(told.error));
  localStorage.setItem(KEPT, told.signIn);
}

const post = (path, given) => fetch(path, { method: "POST", cache: "no-store", credentials: "omit", redirect: "error", ...given });

async function ask(path, given = {}) {
  const headers = { authorization: `Browser ${credential()}`, ...given.headers };
  let response;
  try {
    response = await post(path, { ...given, headers });
  } catch {
    throw new Unreachable("the gateway does not answer");
  }
  if (response.status === 401) throw new Unauthorised("this browser is not signed in any more");
  if (response.status === 429) throw new Unreachable("too many requests: wait a moment", true);
  if (response.status === 408) throw new Unreachable("the request took too long to arrive", true);
  if (response.status === 503) throw new Unreachable("the gateway has no time now", true);
  if (response.status >= 500) throw new Unreachable("the gateway cannot answer now");
  return response;
}

/** The answer of a method, within `patienceMs`. It comes once nothing is pressed, so that the caller may draw at once.
 * Throws Refusal, Unreachable or Unauthorised. */
export async function call(method, params = {}, patienceMs = CALL_MS) {
  try {
    return await answer(method, params, patienceMs);
  } finally {
    await released();
  }
}

async function answer(method, params, patienceMs) {
  const body = JSON.stringify({ jsonrpc: "2.0", method, params, id: 1 });
  const headers = { "content-type": "application/json" };
  const sentAt = performance.now();
  const response = await ask("/rpc", { headers, body, signal: AbortSignal.timeout(patienceMs) });
  let told;
  try {
    told = await response.json();
  } catch {
    throw new Unreachable("the gateway's answer broke off");
  }
  if (!response.ok) throw new Refusal(String(told.error ?? response.status), 0);
  if (told.error) throw new Refusal(told.error.message, told.error.code);
  if (told.result?.nowAt) learnTime(told.result.nowAt, performance.now() - sentAt);
  return told.result;
}

// ---- changes

/** What a second request of each verb that changes something does, if the first one was carried out. */
const AGAIN = {
  // nothing: both carry one key
  agent: "keyed", "runs.again": "keyed", "runs.send": "keyed",
  // nothing: it sets a value to the same
  "sessions.open": "sets", "sessions.patch": "sets",
  // it is refused: the one thing that it names is settled by then
  "approvals.approve": "settles", "approvals.deny": "settles", "permissions.revoke": "settles",
  "plans.approve": "settles", "plans.reject": "settles", "runs.kill": "settles", "runs.remove": "settles",
  "signins.end": "settles", "undelivered.dismiss": "settles", "undelivered.retry": "settles",
  // the same once more, so a person must want it
  "runs.resume": "acts", "runs.steer": "acts", "sessions.stop": "acts", "slash.run": "acts",
};

const wakers = new Set(); // of the changes that wait for their next try
let late = 0;

/** How many changes the gateway has not taken at the first try, and not since. The event `late` tells when it changes. */
export const lateChanges = () => late;

/** Try every late change at once. */
export const hurryChanges = () => { for (const wake of [...wakers]) wake(); };
addEventListener("online", hurryChanges);

/** Have the gateway change something. The request is sent again until the gateway has it, where that is safe: a verb
 * that would act twice is repeated only if it was surely not carried out, else this throws Uncertain. Answers what the
 * verb answers, or undefined if a repeated request was refused because its matter is settled. `waits` is called before
 * each pause; after `signal` nothing is sent any more. */
export async function change(method, params, { patienceMs = CALL_MS, waits = () => {}, signal } = {}) {
  let mayBeDone = false;
  let isLate = false;
  try {
    for (let pauseMs = FIRST_WAIT_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_WAIT_MS)) {
      try {
        return await call(method, params, patienceMs);
      } catch (error) {
        if (error instanceof Refusal && mayBeDone && AGAIN[method] === "settles") return undefined;
        if (!(error instanceof Unreachable)) throw error;
        mayBeDone ||= !error.isRefused;
        if (mayBeDone && AGAIN[method] === "acts") throw new Uncertain(error);
      }
      waits();
      if (!isLate) countLate(1);
      isLate = true;
      await untilWoken(pauseMs, signal);
    }
  } finally {
    if (isLate) countLate(-1);
  }
}

function countLate(more) {
  late += more;
  dispatchEvent(new Event("late"));
}

/** Resolves after about so long, or once `hurryChanges` is called. Throws after `signal`. */
async function untilWoken(pauseMs, signal) {
  let wake;
  const woken = new Promise((go) => { wake = go; });
  const timer = setTimeout(wake, pauseMs * (0.75 + Math.random() / 2));
  signal?.addEventListener("abort", wake);
  wakers.add(wake);
  await woken;
  clearTimeout(timer);
  wakers.delete(wake);
  signal?.throwIfAborted();
}

// ---- reading, and the feed

let isConnected = false; // of the feed

/** Answers a function that runs `work`, which reads something: never twice at once, and once more if it was called
 * meanwhile. While the feed is connected, a reading that the gateway could not answer is tried again; while it is not,
 * the reading fails, and the event `connected` is the time for the next one. */
export const reading = (work) => coalesced(async () => {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Unreachable && isConnected)) throw error;
      await new Promise((go) => setTimeout(go, AGAIN_MS));
    }
  }
});

/** Download a file from the gateway and save it under this name. The credential goes into the header here, too, so that
 * no address carries it. */
export async function download(path, name) {
  const response = await ask(path);
  if (!response.ok) throw new Refusal("the gateway does not have this file any more", NOT_FOUND);
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = address;
  set(link, "download", name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** A unique idempotency key: a request with it is carried out once, however often it is sent. */
export function unique() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Follows the gateway's events until `end()`. Rows of runs are never missed: each connection continues after the last
 * cursor. Other events that were missed must be read again, so each connection begins with an event `connected`. */
export class Feed {
  #cursor = null;
  #ended = false;
  #abort = new AbortController();
  #wake = () => {};
  #waitMs = FIRST_WAIT_MS;

  /** `heard(event)` is called with each event of the feed and with `{type: "connected"}`; `state(word, retryAt)` with
   * connecting, connected, or waiting until `retryAt`, a time of `performance.now()`; `refused()` if this
   * browser is not signed in any more. */
  constructor(heard, state, refused) {
    this.heard = heard;
    this.state = state;
    this.refused = refused;
  }

  async run() {
    while (!this.#ended) {
      this.state("connecting", 0);
      try {
        await this.#once();
      } catch (error) {
        if (error instanceof Unauthorised) { if (!this.#ended) this.refused(); return; }
        if (!(error instanceof Unreachable || error.name === "AbortError" || error instanceof TypeError)) throw error;
      }
      isConnected = false;
      if (!this.#ended) await this.#pause();
    }
  }

  end() {
    this.#ended = true;
    this.#abort.abort();
    this.#wake();
  }

  /** Try at once instead of waiting. */
  hurry() { this.#wake(); }

  async #pause() {
    const waitMs = this.#waitMs * (0.75 + Math.random() / 2);
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
    this.state("waiting", performance.now() + waitMs);
    await new Promise((go) => {
      const timer = setTimeout(go, waitMs);
      this.#wake = () => { clearTimeout(timer); go(); };
    });
    this.#wake = () => {};
  }

  async #once() {
    this.#abort = new AbortController();
    const from = this.#cursor === null ? "" : `&cursor=${this.#cursor}`;
    const response = await ask(`/events?rows=true${from}`, { signal: this.#abort.signal });
    if (!response.ok) {
      this.#cursor = null; // another folder may be served now: begin anew
      return;
    }
    isConnected = true;
    this.state("connected", 0);
    hurryChanges();
    this.#tell({ type: "connected" });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const silence = setTimeout(() => this.#abort.abort(), SILENT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(silence));
      if (done) return;
      this.#waitMs = FIRST_WAIT_MS;
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.#block(block);
    }
  }

  #block(block) {
    for (const line of block.split("\n")) {
      if (line.startsWith(": from ") && this.#cursor === null) this.#cursor = Number(line.slice(7));
      else if (line.startsWith("id: ")) this.#cursor = Number(line.slice(4));
      else if (line.startsWith("data: ")) this.#tell(JSON.parse(line.slice(6)));
    }
  }

  /** An error in the page itself must not end the feed, and must not be hidden either. */
  #tell(event) {
    try { this.heard(event); } catch (error) { reportError(error); }
  }
}
