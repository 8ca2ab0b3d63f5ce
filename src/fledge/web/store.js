// What the page knows of the folder: rows of runs, conversations, questions and plans, by key. The feed keeps it current;
// views subscribe, and are asked to draw at most once a frame. It draws nothing itself.

import { call } from "./gateway.js";
import { coalesced } from "./dom.js";
import { isActive } from "./standing.js";

const MOST_RUNS = 300;
const MOST_CONVERSATIONS = 200;
const SOON_MS = 50;
const CALM_MS = 400; // between two readings; more if a reading takes long
const HIDDEN_MS = 1000; // between two draws while the tab is hidden: only its title is seen

/** True of the key of a run's own session, which has a page of its own. */
export const isRun = (key) => /^agent:[^:]+:(subagent|acp):/.test(key);

export class Store {
  /** @type {Map<string, RunInfo>} runs by session key, parents before children */
  rows = new Map();
  /** @type {Map<string, SessionRow>} conversations by key, the latest first */
  conversations = new Map();
  /** @type {Question[]} oldest first */
  questions = [];
  /** @type {Plan[]} oldest first */
  plans = [];
  /** @type {GivenUp[]} oldest first */
  undelivered = [];
  /** How the feed is: `state` connecting, connected or waiting; `retryAt`; `asOf`: when it was last connected. */
  connection = { state: "connecting", retryAt: 0, asOf: Date.now() };
  isLoaded = false;

  #draws = new Set();
  #ticks = new Set();
  #listeners = new Set();
  #isDue = false;
  #timer = 0;
  #again = false;
  #readAt = -CALM_MS;
  #pauseMs = CALM_MS;

  constructor() {
    this.readWaiting = coalesced(() => this.#readWaiting());
    setInterval(() => { if (!document.hidden) for (const tick of this.#ticks) tick(); }, 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.changed(); });
  }

  // ---- views

  /** Have `draw` called after each change, at most once a frame. Answers what ends that. */
  subscribe(draw) {
    this.#draws.add(draw);
    return () => this.#draws.delete(draw);
  }

  /** Have `tick` called every second while the page is seen, for ages. Answers what ends that. */
  everySecond(tick) {
    this.#ticks.add(tick);
    return () => this.#ticks.delete(tick);
  }

  /** Have `hear` called with each event of the feed, as it is. Answers what ends that. */
  listen(hear) {
    this.#listeners.add(hear);
    return () => this.#listeners.delete(hear);
  }

  /** Something is different: draw soon. */
  changed() {
    if (this.#isDue) return;
    this.#isDue = true;
    const draw = () => {
      this.#isDue = false;
      for (const one of [...this.#draws]) one();
    };
    if (document.hidden) setTimeout(draw, HIDDEN_MS);
    else requestAnimationFrame(draw);
  }

  // ---- what is asked of it

  /** How many questions and plans wait for a person. */
  get waiting() { return this.questions.length + this.plans.length; }

  /** Runs that are at work or have something left to do. */
  get active() { return [...this.rows.values()].filter(isActive).length; }

  /** The runs directly below a session, oldest first. */
  children(key) {
    return [...this.rows.values()].filter((row) => row.requester === key).sort((one, other) => one.createdAt - other.createdAt);
  }

  /** Every run below a session, a child before its own. */
  below(key) {
    return this.children(key).flatMap((row) => [row, ...this.below(row.sessionKey)]);
  }

  /** The conversation that a session belongs to: the first above it that is no run's. */
  rootOf(key) {
    let at = key;
    for (let steps = 0; steps < 100 && this.rows.has(at); steps += 1) at = this.rows.get(at).requester;
    return at;
  }

  // ---- feeding it

  /** How the feed is. */
  connected(state, retryAt) {
    const asOf = this.connection.state === "connected" && state !== "connected" ? Date.now() : this.connection.asOf;
    this.connection = { state, retryAt, asOf };
    this.changed();
  }

  /** An event of the feed. */
  hear(event) {
    if (event.type === "approvals") this.readWaiting();
    if (["connected", "lost", "run"].includes(event.type)) this.stale();
    if (event.type === "turn" && ["end", "error", "start"].includes(event.kind)) this.stale();
    for (const hear of [...this.#listeners]) hear(event);
  }

  /** What is known is old: read it again, soon, however many events say so. */
  stale() {
    if (this.#timer) { this.#again = true; return; }
    this.#timer = setTimeout(() => this.#read(), Math.max(SOON_MS, this.#readAt + this.#pauseMs - performance.now()));
  }

  end() { clearTimeout(this.#timer); }

  #read = async () => {
    this.#again = false;
    const began = performance.now();
    await Promise.all([this.readWaiting(), this.readConversations(), this.readRuns(), this.readUndelivered()]);
    this.isLoaded = true;
    this.#pauseMs = Math.max(CALM_MS, 4 * (performance.now() - began));
    this.#readAt = performance.now();
    this.#timer = 0;
    if (this.#again) this.stale();
  };

  readRuns = coalesced(async () => {
    const { runs } = await call("runs.tree", { limit: MOST_RUNS });
    const rows = new Map();
    const add = (row) => { rows.set(row.sessionKey, row); row.children.forEach(add); };
    runs.forEach(add);
    this.rows = rows;
    this.changed();
  });

  readConversations = coalesced(async () => {
    const found = await call("sessions.list", { kinds: ["main", "named"], limit: MOST_CONVERSATIONS });
    this.conversations = new Map(found.map((conversation) => [conversation.key, conversation]));
    this.changed();
  });

  readUndelivered = coalesced(async () => {
    this.undelivered = await call("undelivered.list");
    this.changed();
  });

  async #readWaiting() {
    const [questions, plans] = await Promise.all([call("approvals.list"), call("plans.list")]);
    this.questions = questions;
    this.plans = plans;
    this.changed();
  }
}
