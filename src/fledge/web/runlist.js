// The runs that the table shows: pages of `runs.query`, read as one scrolls, and rows of the feed, which keep them
// current. `lines` makes the table's lines of them: groups, trees, flat lists. Nothing is drawn here.

import { call } from "./gateway.js";
import { isUndelivered, nameOf, oldestFirst, outcome, standing } from "./standing.js";

const FIRST = 100; // rows of the first page: it is there at once
const PAGE = 500;
const SIZE_MS = 500; // between two readings of the size of a group
const MOST_FOR_PARENTS = 4; // pages that are read on at once because a row's parent is missing
const URGENT = { you: 3, plan: 3, stuck: 2, giveup: 1 };

/** The filters: the name on the wire, the label, whether a row passes, and whether the tree is kept. */
export const FILTERS = [
  { id: "all", words: "All", holds: () => true, isTree: true },
  { id: "active", words: "Active", holds: (row) => row.isActive, isTree: true },
  { id: "waiting", words: "Waiting for me", holds: (row) => row.questionId !== "" || row.planId !== "" },
  { id: "stuck", words: "Stuck", holds: (row) => row.stuckAt !== null },
  { id: "failed", words: "Failed", holds: (row) => ["error", "timeout", "unknown"].includes(outcome(row)) },
  { id: "undelivered", words: "Undelivered", holds: isUndelivered },
];
const filterOf = (id) => FILTERS.find((filter) => filter.id === id);

/** How urgently a run needs a person; 0: not at all. */
export const urgency = (row) => URGENT[standing(row).tone] ?? 0;

/** @typedef {{filter: string, search: string}} Asked which runs are shown */

export class RunList {
  /** @type {Map<string, import("./shapes.js").RunRow>} by session key */
  rows = new Map();
  /** Counts up whenever lines made earlier may be wrong or in the wrong order. A change of a row's values alone does
   * not count. */
  shape = 0;
  #sizes = new Map(); // by group: how many of its runs each filter finds
  #walks = new Map(); // by filter and search: how far its pages are read
  #changed;

  /** `changed()` is called after each change. */
  constructor(store, changed) {
    this.#changed = changed;
    store.listen((event) => {
      if (event.type === "row") { this.#take(event.row); this.#changed(); }
      if (event.type === "connected" || event.type === "lost") this.refresh();
    });
  }

  /** From now on, call this function after each change, for another view. */
  tell(changed) { this.#changed = changed; }

  /** How far the pages of a filter and search are read: `{isReading, isAtEnd, error}`. */
  walk({ filter, search }) {
    const name = `${filter} ${search}`;
    if (!this.#walks.has(name)) this.#walks.set(name, { cursor: "", isReading: false, isAtEnd: false, error: "", found: new Set() });
    return this.#walks.get(name);
  }

  /** How many runs a group has for a filter, in the folder and not only here. Undefined until that is known; it is asked
   * again after a row of the group has come. */
  sizeOf(group, filter) {
    if (!this.#sizes.has(group)) this.#sizes.set(group, { counts: null, isNew: false, isReading: false });
    const size = this.#sizes.get(group);
    if (!size.isNew && !size.isReading) this.#readSize(group, size);
    return size.counts?.[filter];
  }

  async #readSize(group, size) {
    Object.assign(size, { isNew: true, isReading: true });
    try {
      size.counts = (await call("runs.query", { below: group, limit: 1 })).counts;
    } catch { /* it is asked again after the next row, or when the feed is connected again */ }
    setTimeout(() => { size.isReading = false; this.#changed(); }, SIZE_MS);
  }

  /** Read the newest runs again, and the next page of each list of runs that need a person. */
  async refresh() {
    for (const size of this.#sizes.values()) size.isNew = false;
    const first = this.walk({ filter: "all", search: "" });
    if (first.cursor === "" && !first.isAtEnd) await this.readOn({ filter: "all", search: "" });
    else await this.#readNewest();
    await Promise.all(["waiting", "stuck", "undelivered"].map((filter) => this.readOn({ filter, search: "" })));
  }

  async #readNewest() {
    try {
      const page = await call("runs.query", { sort: "active", limit: FIRST });
      page.rows.forEach((row) => this.#take(row));
      this.#changed();
    } catch { /* the feed is not connected either; `refresh` follows when it is */ }
  }

  /** Read the next page of a filter and search, and further ones while the parent of a row is not here yet. */
  async readOn(asked) {
    const walk = this.walk(asked);
    if (walk.isReading || walk.isAtEnd) return;
    Object.assign(walk, { isReading: true, error: "" });
    try {
      for (let pages = 0; pages < MOST_FOR_PARENTS && !walk.isAtEnd; pages += 1) {
        const page = await call("runs.query", { ...asked, sort: "active", cursor: walk.cursor, limit: walk.cursor ? PAGE : FIRST });
        for (const row of page.rows) { this.#take(row); walk.found.add(row.sessionKey); }
        Object.assign(walk, { cursor: page.next, isAtEnd: page.next === "" });
        if (!filterOf(asked.filter).isTree || page.rows.every((row) => row.parent === null || this.rows.has(row.parent))) break;
      }
    } catch (error) {
      walk.error = error.message;
    }
    walk.isReading = false;
    this.shape += 1;
    this.#changed();
  }

  #take(row) {
    if (this.#sizes.has(row.root)) this.#sizes.get(row.root).isNew = false;
    const before = this.rows.get(row.sessionKey);
    if (row.phase === "archived") { if (this.rows.delete(row.sessionKey)) this.shape += 1; return; }
    if (before === undefined || before.isActive !== row.isActive || before.status !== row.status || standing(before).tone !== standing(row).tone) this.shape += 1;
    this.rows.set(row.sessionKey, row);
  }

  /** The runs that need a person, the most urgent first. */
  urgent() {
    return [...this.rows.values()].filter((row) => urgency(row) > 0)
      .sort((one, other) => urgency(other) - urgency(one) || oldestFirst(one, other));
  }

  /** The lines for a filter and search. `isGrouped`: by the conversation or program at the top; `folded`: keys of
   * groups and runs whose lines below are left out. */
  lines(asked, isGrouped, folded) {
    const { holds, isTree } = filterOf(asked.filter);
    const words = asked.search.toLowerCase();
    const { found } = this.walk(asked);
    const says = (row) => words === "" || found.has(row.sessionKey) || row.task.toLowerCase().includes(words) || nameOf(row).toLowerCase().includes(words);
    const hits = [...this.rows.values()].filter((row) => holds(row) && says(row));
    return lines(this.rows, hits, { isTree: Boolean(isTree), isGrouped, folded });
  }
}

const isLive = (row) => Number(row.isActive);
const newestFirst = (one, other) => isLive(other) - isLive(one) || oldestFirst(other, one);

/** @typedef {object} Line
 * @property {string} key
 * @property {string} [group] the session at the top, if the line begins a group; `runs` is then the number of runs in it
 * @property {number} depth
 * @property {boolean} hasBelow there are lines below that can be folded
 * @property {boolean} isContext the run itself does not match: it is shown for a run below it
 */

/** The lines of these runs.
 * @returns {Line[]} */
function lines(rows, hits, { isTree, isGrouped, folded }) {
  const shown = new Map(); // by key: true if it is a hit, false if it only leads to one
  for (const hit of hits) {
    shown.set(hit.sessionKey, true);
    if (isTree) for (let above = rows.get(hit.parent); above && !shown.has(above.sessionKey); above = rows.get(above.parent)) shown.set(above.sessionKey, false);
  }
  const below = new Map(); // by key of a run or a group: the runs directly below
  const groups = new Map();
  for (const key of shown.keys()) {
    const row = rows.get(key);
    const group = groups.get(row.root) ?? groups.set(row.root, { key: row.root, runs: 0, urgency: 0, live: 0, latest: 0 }).get(row.root);
    group.runs += 1;
    group.urgency = Math.max(group.urgency, urgency(row));
    group.live = Math.max(group.live, isLive(row));
    group.latest = Math.max(group.latest, row.createdAt);
    const above = isTree && shown.has(row.parent) ? row.parent : isGrouped ? `#${row.root}` : "#";
    below.get(above)?.push(row) ?? below.set(above, [row]);
  }
  const made = [];
  const add = (row, depth) => {
    const children = below.get(row.sessionKey) ?? [];
    made.push({ key: row.sessionKey, depth, hasBelow: children.length > 0, isContext: !shown.get(row.sessionKey) });
    if (!folded.has(row.sessionKey)) for (const child of children.sort(oldestFirst)) add(child, depth + 1);
  };
  if (!isGrouped) {
    for (const row of (below.get("#") ?? []).sort(newestFirst)) add(row, 0);
    return made;
  }
  const inOrder = [...groups.values()].sort((one, other) => Number(other.urgency > 0) - Number(one.urgency > 0) || other.live - one.live || other.latest - one.latest);
  for (const group of inOrder) {
    made.push({ key: `#${group.key}`, group: group.key, runs: group.runs, depth: 0, hasBelow: true, isContext: false });
    if (!folded.has(`#${group.key}`)) for (const row of (below.get(`#${group.key}`) ?? []).sort(newestFirst)) add(row, 0);
  }
  return made;
}
