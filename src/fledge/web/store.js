// The page's copy of the state folder: rows of runs and conversations by key, questions, plans and undelivered results.
// The feed keeps it current; views subscribe, and draw at most once a frame. It draws nothing itself.

import { call, reading } from "./gateway.js";
import { heldMs, isPressed, whenReleased } from "./press.js";
import { oldestFirst } from "./standing.js";
import { present } from "./time.js";

const MOST_RUNS = 300;
const MOST_BELOW = 500; // of a conversation that is shown
const MOST_ROWS = 3000; // that are held; if there are more, they are read anew, within the two limits above
const MOST_CONVERSATIONS = 100;
const SOON_MS = 50;
const CALM_MS = 400; // between two readings; more if a reading takes long
const CHECK_MS = 30_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const SAY_S = 5; // until a failed report of the session that is shown is sent again
const HIDDEN_MS = 1000; // between two draws while the tab is hidden: only its title is visible

/** True of the key of a run's own session, which has a page of its own. */
export const isRun = (key) => /^agent:[^:]+:(subagent|acp):/.test(key);

export class Store {
  /** @type {Map<string, import("./shapes.js").RunRow>} runs by session key: the active ones, the newest others, and
   * those below the sessions that are watched */
  rows = new Map();
  /** How many runs each filter finds in the whole folder. */
  counts = { all: 0, active: 0, waiting: 0, stuck: 0, failed: 0, undelivered: 0 };
  /** @type {Map<string, import("./shapes.js").SessionRow>} conversations by key, the latest first */
  conversations = new Map();
  /** @type {import("./shapes.js").Question[]} oldest first */
  questions = [];
  /** @type {import("./shapes.js").Plan[]} oldest first */
  plans = [];
  /** @type {import("./shapes.js").GivenUp[]} oldest first */
  undelivered = [];
  /** The state of the feed: `state` connecting, connected or waiting; `retryAt`; `asOf`: when it was last connected. */
  connection = { state: "connecting", retryAt: 0, asOf: present() };
  isLoaded = false;

  #draws = new Set();
  #ticks = new Set();
  #listeners = new Set();
  #readsRows = true;
  #byRequester = null; // made when it is asked for, from the rows of that moment
  #heard = new Map(); // rows that the feed has brought since the last reading began: they are newer than its answer
  #watched = new Map(); // by session key: how many views watch the runs below it
  #sayAt = Infinity; // when to report again which sessions are shown
  #isDue = false;
  #timer = 0;
  #expiry = 0; // the timer of the question or plan that expires first
  #again = false;
  #readAt = -CALM_MS;
  #pauseMs = CALM_MS;

  constructor() {
    this.readWaiting = reading(() => this.#readWaiting());
    setInterval(() => { if (!document.hidden && !isPressed()) for (const tick of this.#ticks) tick(); }, 1000);
    setInterval(() => { if (!document.hidden && this.connection.state === "connected") this.stale(); }, CHECK_MS); // not every change has an event
    this.everySecond(() => { if (performance.now() >= this.#sayAt) for (const key of this.#watched.keys()) this.#say(key); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.changed(); });
  }

  // ---- views

  /** Call `draw` after each change, at most once a frame, while nothing is pressed. Answers a function that ends this. */
  subscribe(draw) {
    this.#draws.add(draw);
    return () => this.#draws.delete(draw);
  }

  /** Call `tick` every second, while the page is visible and nothing is pressed, to update ages and the like. Answers a
   * function that ends this. */
  everySecond(tick) {
    this.#ticks.add(tick);
    return () => this.#ticks.delete(tick);
  }

  /** Call `hear` with each event of the feed, as it is. Answers a function that ends this. */
  listen(hear) {
    this.#listeners.add(hear);
    return () => this.#listeners.delete(hear);
  }

  /** Hold the runs below a session while a view shows it. Answers a function that ends this. */
  watch(key) {
    this.#watched.set(key, (this.#watched.get(key) ?? 0) + 1);
    this.#readsRows = true;
    this.stale();
    this.#say(key);
    return () => {
      this.#watched.set(key, this.#watched.get(key) - 1);
      if (this.#watched.get(key) === 0) this.#watched.delete(key);
    };
  }

  /** Report that a session is shown: where processes share a store, the feed then brings its live words, whichever
   * process drives it. The answer has the text so far of its open reply. */
  async #say(key) {
    this.#sayAt = Infinity;
    const { againS, soFar } = await call("events.watch", { session: key }).catch(() => ({ againS: SAY_S })); // only live words are missed
    if (soFar) for (const hear of [...this.#listeners]) hear({ type: "turn", ...soFar });
    if (againS > 0) this.#sayAt = Math.min(this.#sayAt, performance.now() + againS * 1000);
  }

  /** Something has changed: draw soon. */
  changed() {
    if (this.#isDue) return;
    this.#isDue = true;
    const draw = () => whenReleased(() => {
      this.#isDue = false;
      for (const one of [...this.#draws]) one();
    });
    if (document.hidden) setTimeout(draw, HIDDEN_MS);
    else requestAnimationFrame(draw);
  }

  // ---- queries

  /** How many questions and plans wait for a person. */
  get waiting() { return this.questions.length + this.plans.length; }

  /** The runs directly below a session, oldest first. */
  children(key) {
    this.#byRequester ??= Map.groupBy([...this.rows.values()].sort(oldestFirst), (row) => row.requester);
    return this.#byRequester.get(key) ?? [];
  }

  /** Every run below a session, each before its own children. */
  below(key) {
    return this.children(key).flatMap((row) => [row, ...this.below(row.sessionKey)]);
  }

  /** The conversation that a session belongs to; the session itself if it is no run's. */
  rootOf(key) { return this.rows.get(key)?.root ?? key; }

  /** Conversations with these words in label, key or first words, also those that are not here yet. */
  async findConversations(words) {
    const { rows } = await call("sessions.query", { kinds: ["main", "named"], search: words, limit: MOST_CONVERSATIONS });
    return rows;
  }

  // ---- updates

  /** The connection of the feed has changed. */
  connected(state, retryAt) {
    const asOf = this.connection.state === "connected" && state !== "connected" ? present() : this.connection.asOf;
    this.connection = { state, retryAt, asOf };
    this.changed();
  }

  /** An event of the feed has come. */
  hear(event) {
    if (event.type === "connected" || event.type === "lost") { this.#readsRows = true; this.stale(); }
    if (event.type === "row") this.#take(event.row);
    if (event.type === "approvals") { this.readWaiting(); this.stale(); } // the rows of conversations count what waits in them
    if (event.type === "turn" && ["start", "end", "error", "interrupt"].includes(event.kind)) this.stale();
    for (const hear of [...this.#listeners]) hear(event);
  }

  #take(row) {
    this.rows.set(row.sessionKey, row);
    this.#byRequester = null;
    this.#heard.set(row.sessionKey, row);
    if (this.rows.size > MOST_ROWS) this.#readsRows = true; // the next reading drops the old ones
    this.changed();
    this.stale();
  }

  /** Everything besides the rows of runs may be old: read it again soon, and only once for many events. */
  stale() {
    if (this.#timer) { this.#again = true; return; }
    this.#timer = setTimeout(() => this.#read(), Math.max(SOON_MS, this.#readAt + this.#pauseMs - performance.now()));
  }

  end() {
    clearTimeout(this.#timer);
    clearTimeout(this.#expiry);
  }

  #read = async () => {
    this.#again = false;
    const began = performance.now() - heldMs();
    await Promise.all([this.readWaiting(), this.readConversations(), this.#readsRows ? this.readRuns() : this.readCounts(), this.readUndelivered()]);
    this.isLoaded = true;
    this.#pauseMs = Math.max(CALM_MS, 4 * (performance.now() - heldMs() - began));
    this.#readAt = performance.now();
    this.#timer = 0;
    if (this.#again) this.stale();
  };

  readCounts = reading(async () => {
    this.counts = (await call("runs.query", { limit: 1 })).counts;
    this.changed();
  });

  readRuns = reading(async () => {
    this.#readsRows = false;
    this.#heard = new Map();
    const roots = [...this.#watched.keys()];
    let answers;
    try {
      answers = await Promise.all([
        call("runs.query", { sort: "active", limit: MOST_RUNS }),
        ...roots.map((below) => call("runs.query", { below, sort: "active", limit: MOST_BELOW })),
      ]);
    } catch (error) {
      this.#readsRows = true;
      throw error;
    }
    this.counts = answers[0].counts;
    this.rows = new Map(answers.flatMap((answer) => answer.rows).map((row) => [row.sessionKey, row]));
    for (const [key, row] of this.#heard) this.rows.set(key, row);
    this.#byRequester = null;
    this.changed();
  });

  readConversations = reading(async () => {
    const { rows } = await call("sessions.query", { kinds: ["main", "named"], limit: MOST_CONVERSATIONS });
    this.conversations = new Map(rows.map((conversation) => [conversation.key, conversation]));
    this.changed();
  });

  readUndelivered = reading(async () => {
    this.undelivered = await call("undelivered.list");
    this.changed();
  });

  async #readWaiting() {
    const [questions, plans] = await Promise.all([call("approvals.list"), call("plans.list")]);
    this.questions = questions;
    this.plans = plans;
    clearTimeout(this.#expiry);
    const first = Math.min(...[...questions, ...plans].map(({ expiresAt }) => expiresAt));
    if (first < Infinity) this.#expiry = setTimeout(() => this.readWaiting(), Math.max(SOON_MS, Math.min(first - present(), LONGEST_TIMER_MS)));
    this.changed();
  }
}
