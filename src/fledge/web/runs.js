// All runs: those that need a person, then a table of runs as trees on one time axis. This file has the filters, the
// search and the folds; runlist.js knows which runs there are, and virtual.js which rows are in the document.

import * as actions from "./actions.js";
import { ticks } from "./axis.js";
import { strip } from "./bars.js";
import { announce, button, el, fill, glyph, icon, kbd, refill, set, write } from "./dom.js";
import { age, clock, count, full, hm, plural } from "./format.js";
import { change } from "./gateway.js";
import { conversationName, runPath, shortKey } from "./names.js";
import { FILTERS, RunList, urgency } from "./runlist.js";
import { costOfAll, purse, tokensOf } from "./spent.js";
import { isUndelivered, nameOf, standing, tookMs } from "./standing.js";
import { present } from "./time.js";
import { VirtualList } from "./virtual.js";

const MINUTE = 60_000;
const WINDOWS = [["5 min", 5], ["30 min", 30], ["2 h", 120], ["24 h", 1440], ["7 days", 10_080]];
const MOST_URGENT = 8;
const FITTED = 10; // the number of newest runs that the axis shows at first
const AHEAD = 10; // the next page is read this many rows before the end of the list
const SEARCH_MS = 250;
const TICK_PX = 52;
const ROW_PX = 36; // as in runs.css, like the next one
const TWO_LINES_PX = 60;
const narrow = matchMedia("(max-width: 983px)");

export const title = () => "Runs";

export function mount(root, params, shared) {
  const table = new RunTable(root, shared);
  return () => table.end();
}

/** The state of the view, which is kept between two visits. */
const fresh = () => ({ filter: "all", search: "", isGrouped: true, minutes: 0, folded: new Set(), chosen: "", selected: new Set(), isSelecting: false, scrollTop: 0 });

class RunTable {
  #lines = [];
  #shape = -1;
  #at = -1; // where the current row is among the lines
  #axisPx = 0;
  #ids = new Map(); // by key of a line: the id of its row
  #searching = 0;

  constructor(root, { store, keys, kept }) {
    this.store = store;
    if (!kept.has("runs")) kept.set("runs", { state: fresh(), list: new RunList(store, () => {}) });
    Object.assign(this, kept.get("runs"));
    this.list.tell(() => this.store.changed());
    this.#build(root);
    this.virtual = new VirtualList({
      scroller: this.grid, body: this.body, top: () => (narrow.matches ? 0 : ROW_PX), rowHeight: () => (narrow.matches ? TWO_LINES_PX : ROW_PX),
      keyOf: (line) => line.key, make: (line) => this.#row(line), seen: (first, last) => this.#seen(last),
    });
    this.resized = new ResizeObserver(() => { this.#axisPx = this.axis.clientWidth; this.#drawAxis(); this.virtual.paint(); });
    this.resized.observe(this.grid);
    this.ends = [
      store.subscribe(() => this.#draw()),
      store.everySecond(() => { this.#drawAxis(); this.virtual.paint(); }),
      keys({
        j: () => this.#step(1), k: () => this.#step(-1), x: () => this.#select(), f: () => this.find.focus(),
        ...Object.fromEntries(FILTERS.map(({ id }, n) => [String(n + 1), () => this.#ask({ filter: id })])),
      }),
    ];
    this.list.refresh();
    this.#draw();
    this.grid.scrollTop = this.state.scrollTop;
  }

  end() {
    this.state.scrollTop = this.grid.scrollTop;
    this.resized.disconnect();
    this.ends.forEach((end) => end());
  }

  #build(root) {
    const { state } = this;
    this.told = el("p", { class: "soft", id: "runs-told" });
    this.urgent = el("ul", { class: "attention", "aria-label": "Runs that need a look", hidden: true });
    this.pills = FILTERS.map(({ id, words }, n) => {
      const number = el("span", { class: "num" });
      const pill = el("button", { type: "button", class: `pill p-${id}`, "aria-keyshortcuts": String(n + 1), on: { click: () => this.#ask({ filter: id }) } }, words, " ", number);
      return { id, pill, number };
    });
    this.find = el("input", { type: "search", class: "field", id: "find-run", placeholder: "Search runs", "aria-label": "Search runs", "aria-keyshortcuts": "f", maxlength: 256, autocomplete: "off", on: {
      input: () => this.#search(),
      keydown: (event) => { if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); this.grid.focus(); } },
    } });
    this.find.value = state.search;
    this.window = el("select", { class: "field", "aria-label": "Time shown", on: { change: () => { state.minutes = Number(this.window.value); this.#drawAxis(); this.virtual.paint(); } } },
      WINDOWS.map(([words, minutes]) => el("option", { value: minutes }, `Last ${words}`)));
    const grouping = el("select", { class: "field by", "aria-label": "Group by", on: { change: () => { this.#ask({ isGrouped: grouping.value === "requester" }); } } },
      el("option", { value: "requester", selected: state.isGrouped }, "By requester"), el("option", { value: "", selected: !state.isGrouped }, "Not grouped"));
    this.selecting = button("Select", { kind: "small", "aria-pressed": "false", act: () => this.#toggleSelecting() });
    this.chosenBar = el("div", { class: "selection", role: "group", "aria-label": "Selected runs", hidden: true });
    this.axis = el("div", { class: "axis", "aria-hidden": "true" });
    const heading = (words, kind) => el("div", { role: "columnheader", class: kind }, words);
    this.headRow = el("div", { class: "vhead vrow", role: "row", "aria-rowindex": 1 }, heading("Run", "c-name"), heading("State", "c-state"),
      heading([el("span", { class: "sr" }, "When"), this.axis], "c-axis"),
      heading("Try", "c-try"), heading("Agent · model", "c-agent"), heading("Tokens", "c-tok end"), heading("Cost", "c-cost"), heading("Now", "c-now"));
    this.body = el("div", { class: "vbody", role: "rowgroup" });
    this.grid = el("div", { class: "vtable", id: "runs-grid", role: "treegrid", "aria-label": "Runs", "aria-multiselectable": "true", "aria-describedby": "runs-told", tabindex: "0", on: { keydown: (event) => this.#key(event) } }, this.headRow, this.body);
    this.none = el("div", { class: "teach", id: "runs-empty", hidden: true });
    fill(root, el("section", { class: "page runs", "aria-label": "Runs" },
      el("header", { class: "head" }, el("div", { class: "grow" }, el("h1", null, "Runs"), this.told),
        el("span", { class: "soft only-wide hints" }, kbd("j", "k"), "move", kbd("Enter"), "open", kbd("x"), "select", kbd("?"), "keys")),
      this.urgent,
      el("div", { class: "toolbar" }, el("div", { class: "pills", role: "group", "aria-label": "Filter" }, this.pills.map(({ pill }) => pill)), el("span", { class: "grow" }),
        el("div", { class: "findbox" }, icon("search", 14), this.find), this.window, grouping, this.selecting),
      this.chosenBar, this.grid, this.none));
  }

  get #asked() { return { filter: this.state.filter, search: this.state.search }; }

  /** Change the filter, the search or the grouping, and show the list from its top. */
  #ask(changes) {
    Object.assign(this.state, changes);
    this.#shape = -1;
    this.grid.scrollTop = 0;
    this.#draw();
  }

  /** Search the rows that are here at once, and the gateway when the person has stopped typing. */
  #search() {
    this.#ask({ search: this.find.value.trim() });
    clearTimeout(this.#searching);
    this.#searching = setTimeout(() => this.list.readOn(this.#asked), SEARCH_MS);
  }

  // ---- drawing

  #draw() {
    const { list, state, store } = this;
    const { counts } = store;
    write(this.told, `${counts.active} active, ${counts.all.toLocaleString()} in all`);
    for (const { id, pill, number } of this.pills) {
      write(number, counts[id].toLocaleString());
      pill.setAttribute("aria-pressed", String(state.filter === id));
      pill.classList.toggle("some", counts[id] > 0);
    }
    if (this.#shape !== list.shape) this.#lay();
    else this.virtual.paint();
  }

  #lay() {
    const { list, state } = this;
    this.#shape = list.shape;
    const walk = list.walk(this.#asked);
    this.#lines = list.lines(this.#asked, state.isGrouped, state.folded);
    const isEmpty = this.#lines.length === 0;
    if (!walk.isAtEnd) this.#lines.push({ key: "more", more: true, depth: 0 });
    this.grid.setAttribute("aria-rowcount", walk.isAtEnd ? String(this.#lines.length + 1) : "-1");
    this.none.hidden = !(isEmpty && walk.isAtEnd);
    this.grid.hidden = isEmpty && walk.isAtEnd;
    if (!this.none.hidden) this.#drawNone();
    this.#drawUrgent();
    this.#drawAxis();
    this.#drawSelection();
    this.#findChosen();
    this.virtual.set(this.#lines);
  }

  #drawNone() {
    const { state, store } = this;
    if (store.counts.all > 0 || state.search) {
      fill(this.none, el("h2", null, state.search ? "No run says that." : "No run is like that."), button("Show all runs", { act: () => {
        this.find.value = "";
        this.#ask({ filter: "all", search: "" });
      } }));
      return;
    }
    fill(this.none, icon("runs", 28), el("h2", null, "No runs yet"),
      el("p", { class: "soft" }, "A run is a job that an agent does in the background, and whose answer comes back by itself. The model starts runs when you ask for something big. You can, too:"),
      el("p", { class: "cmd" }, el("code", null, "/subagents spawn main Find out why the tests are slow")),
      el("p", { class: "soft" }, "or on the command line:"), el("p", { class: "cmd" }, el("code", null, "fledge spawn \"Find out why the tests are slow\"")));
  }

  #drawUrgent() {
    const rows = this.list.urgent();
    this.urgent.hidden = rows.length === 0;
    const shown = rows.slice(0, MOST_URGENT);
    refill(this.urgent, shown.map((row) => {
      const { tone, word } = standing(row);
      return el("li", null, el("a", { class: `att c-${tone}`, href: runPath(row.sessionKey) }, glyph(tone),
        el("span", { class: "min" }, el("b", { class: "clip" }, nameOf(row)), el("span", { class: "clip" }, row.now?.text ?? word)), icon("right", 13)));
    }), rows.length > shown.length && el("li", { class: "soft" }, `and ${rows.length - shown.length} more`));
  }

  /** The time that the axis shows: until a little after now. */
  get #time() {
    const now = present();
    const width = this.state.minutes * MINUTE;
    return { now, from: now - width, to: now + width / 50 };
  }

  #drawAxis() {
    if (!this.state.minutes) this.state.minutes = this.#fittingWindow();
    this.window.value = String(this.state.minutes);
    const { now, from, to } = this.#time;
    const percent = (at) => `${((at - from) / (to - from)) * 100}%`;
    const width = this.#axisPx || 220;
    const { step, first, ticks: found } = ticks(from, to, width / TICK_PX);
    fill(this.axis, found.filter(({ at }) => ((at - from) / (to - from)) * width < width - TICK_PX + 14).map(({ at, words }) => el("span", { class: "axtick", css: { left: percent(at) } }, words)));
    this.grid.style.setProperty("--step", `${(step / (to - from)) * 100}%`);
    this.grid.style.setProperty("--first", percent(first));
    this.grid.style.setProperty("--now", percent(now));
  }

  /** The shortest time in which the newest runs began; 0 while none is known. */
  #fittingWindow() {
    const newest = [...this.list.rows.values()].map((row) => row.createdAt).sort((one, other) => other - one).slice(0, FITTED);
    if (!newest.length) return 0;
    return (WINDOWS.find(([, minutes]) => present() - newest.at(-1) < minutes * MINUTE * 0.9) ?? WINDOWS.at(-1))[1];
  }

  // ---- rows

  #idOf(key) {
    if (!this.#ids.has(key)) this.#ids.set(key, `run-row-${this.#ids.size}`);
    return this.#ids.get(key);
  }

  #row(line) {
    if (line.more) return this.#moreRow();
    return line.group === undefined ? this.#runRow(line) : this.#groupRow(line);
  }

  /** Set the attributes that all rows have. */
  #dress(node, line, index) {
    node.setAttribute("aria-rowindex", String(index + 2));
    node.setAttribute("aria-level", String(line.group === undefined ? line.depth + (this.state.isGrouped ? 2 : 1) : 1));
    if (line.hasBelow) node.setAttribute("aria-expanded", String(!this.state.folded.has(line.key)));
    else node.removeAttribute("aria-expanded");
    node.classList.toggle("pick", index === this.#at);
  }

  #caret(key) {
    return el("span", { class: "caretbtn", on: { click: (event) => { event.stopPropagation(); event.preventDefault(); this.#choose(key); this.#fold(key); } } }, icon("right", 12));
  }

  #groupRow(line) {
    const name = el("b", { class: "clip" });
    const number = el("span", { class: "faint nowrap" });
    const node = el("div", { class: "vrow grouprow", role: "row", id: this.#idOf(line.key), on: { click: () => { this.#choose(line.key); this.#fold(line.key); } } },
      el("div", { role: "gridcell", class: "wholerow" }, this.#caret(line.key), icon("chat", 14), name, number));
    return { node, update: (now, index) => {
      this.#dress(node, now, index);
      const conversation = this.store.conversations.get(now.group);
      show(name, conversation ? conversationName(conversation) : shortKey(now.group));
      show(number, this.#sizeOf(now));
    } };
  }

  /** How many runs a group has: also those that are not here yet, unless a search leaves some out. */
  #sizeOf({ group, runs }) {
    const { filter, search } = this.#asked;
    if (this.list.walk(this.#asked).isAtEnd) return plural(runs, "run");
    const all = search ? undefined : this.list.sizeOf(group, filter);
    return all === undefined ? `${plural(runs, "run")} so far` : plural(all, "run");
  }

  #moreRow() {
    const words = el("span", { class: "soft" });
    const again = button("Try again", { kind: "link", act: () => this.list.readOn(this.#asked) });
    const node = el("div", { class: "vrow morerow", role: "row", id: this.#idOf("more") }, el("div", { role: "gridcell", class: "wholerow" }, words, again));
    return { node, update: (line, index) => {
      this.#dress(node, line, index);
      const { error } = this.list.walk(this.#asked);
      again.hidden = !error;
      show(words, error || "loading …");
    } };
  }

  #runRow({ key }) {
    const cell = (kind, ...children) => el("div", { role: "gridcell", class: kind }, ...children);
    const caret = this.#caret(key);
    const sign = el("span", { class: "sign" });
    const link = el("a", { class: "clip name", href: runPath(key), tabindex: "-1", "data-run": key });
    const took = el("span", { class: "c-age num faint" });
    const name = cell("c-name", caret, sign, link, took);
    const [state, when, attempt, agent, tokens, cost, now] = ["c-state", "c-axis", "c-try num", "c-agent clip", "c-tok num end", "c-cost", "c-now clip"].map((kind) => cell(kind));
    const node = el("div", { class: "vrow", role: "row", id: this.#idOf(key), on: { click: (event) => this.#clicked(event, key) } }, name, state, when, attempt, agent, tokens, cost, now);
    return { node, update: (line, index) => {
      const row = this.list.rows.get(key);
      if (!row) return; // the run is gone; the next lines leave it out
      const { word, tone } = standing(row);
      const isSelected = this.state.selected.has(key);
      this.#dress(node, line, index);
      node.setAttribute("aria-selected", String(isSelected));
      node.className = ["vrow", urgency(row) > 0 && `hot h-${tone}`, index === this.#at && "pick", line.isContext && "dim", isSelected && "selected"].filter(Boolean).join(" ");
      name.style.setProperty("--d", String(line.depth));
      caret.classList.toggle("leaf", !line.hasBelow);
      show(sign, `${tone} ${this.state.isSelecting} ${isSelected}`, () => (this.state.isSelecting ? el("span", { class: `tickbox ${isSelected ? "on" : ""}` }, isSelected && icon("check", 11)) : glyph(tone)));
      show(link, nameOf(row));
      show(took, age(tookMs(row)));
      show(state, `${tone} ${word}`, () => el("span", { class: `chip c-${tone}` }, word));
      const { now: at, from, to } = this.#time;
      fill(when, el("span", { class: "sr" }, whenWords(row)), isBefore(row, from) ? el("span", { class: "gone faint", "aria-hidden": "true", title: full(row.createdAt) }, icon("back", 11), age(at - row.endedAt), " ago") : strip(row, () => ({ from, to })));
      show(attempt, `${row.attempt} ${row.crashes}`, () => tries(row));
      show(agent, `${row.agentId} ${row.model}`, () => [row.agentId, row.model && el("span", { class: "faint" }, ` · ${row.model}`)]);
      show(tokens, count(tokensOf(row)));
      show(cost, `${row.costUsd} ${costOfAll(row)} ${JSON.stringify(row.budget)}`, () => purse(row));
      drawNow(now, row, tone);
    } };
  }

  #clicked(event, key) {
    this.#choose(key);
    if (this.state.isSelecting) { event.preventDefault(); this.#select(key); return; }
    if (!event.target.closest("a")) location.hash = runPath(key);
  }

  // ---- the current row

  #choose(key) {
    this.state.chosen = key;
    this.#findChosen();
    this.virtual.paint();
  }

  #findChosen() {
    this.#at = this.state.chosen ? this.#lines.findIndex((line) => line.key === this.state.chosen) : -1;
    this.virtual.pin(this.#at);
    if (this.#at < 0) this.grid.removeAttribute("aria-activedescendant");
    else this.grid.setAttribute("aria-activedescendant", this.#idOf(this.state.chosen));
  }

  #step(by) {
    this.grid.focus();
    this.#move(by);
  }

  #move(by) {
    const last = this.#lines.findLastIndex((line) => !line.more);
    if (last < 0) return;
    const to = Math.max(0, Math.min(last, this.#at < 0 ? by - 1 : this.#at + by));
    this.virtual.show(to);
    this.#choose(this.#lines[to].key);
  }

  #key(event) {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const act = {
      ArrowDown: () => this.#move(1), ArrowUp: () => this.#move(-1), Home: () => this.#move(-Infinity), End: () => this.#move(Infinity),
      PageDown: () => this.#move(this.virtual.pageSize), PageUp: () => this.#move(-this.virtual.pageSize),
      ArrowRight: () => this.#unfold(), ArrowLeft: () => this.#foldOrUp(), Enter: () => this.#open(), " ": () => this.#select(),
      Escape: this.state.selected.size ? () => this.#clearSelection() : null,
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  #open() {
    const line = this.#lines[this.#at];
    if (!line || line.more) return;
    if (line.group === undefined) location.hash = runPath(line.key);
    else this.#fold(line.key);
  }

  #fold(key) {
    const { folded } = this.state;
    if (!folded.delete(key)) folded.add(key);
    this.#shape = -1;
    this.#draw();
  }

  #unfold() {
    const line = this.#lines[this.#at];
    if (line?.hasBelow && this.state.folded.has(line.key)) this.#fold(line.key);
    else this.#move(1);
  }

  /** Fold the current row if it is unfolded; else go to the row that it is below. */
  #foldOrUp() {
    const at = this.#at;
    const line = this.#lines[at];
    if (!line) return;
    if (line.hasBelow && !this.state.folded.has(line.key)) { this.#fold(line.key); return; }
    const above = this.#lines.slice(0, at).findLastIndex((one) => one.group !== undefined || (one.depth < line.depth && !one.more));
    if (above >= 0) this.#move(above - at);
  }

  #seen(last) {
    const walk = this.list.walk(this.#asked);
    if (last + AHEAD >= this.#lines.length - 1 && !walk.isAtEnd && !walk.error && this.#lines.length) this.list.readOn(this.#asked);
  }

  // ---- selected rows

  #select(key = this.state.chosen) {
    const { selected } = this.state;
    if (!this.list.rows.has(key)) return;
    if (!selected.delete(key)) selected.add(key);
    announce(`${plural(selected.size, "run")} selected`);
    this.#drawSelection();
    this.virtual.paint();
  }

  #toggleSelecting() {
    this.state.isSelecting = !this.state.isSelecting;
    if (this.state.isSelecting) { this.#drawSelection(); this.virtual.paint(); } else this.#clearSelection();
  }

  #clearSelection() {
    if (this.chosenBar.contains(document.activeElement)) this.grid.focus(); // its buttons go away
    this.state.selected.clear();
    this.state.isSelecting = false;
    this.#drawSelection();
    this.virtual.paint();
  }

  #drawSelection() {
    const { isSelecting, selected } = this.state;
    const rows = [...selected].map((key) => this.list.rows.get(key)).filter(Boolean);
    this.selecting.setAttribute("aria-pressed", String(isSelecting));
    this.chosenBar.hidden = rows.length === 0;
    if (!rows.length) { fill(this.chosenBar); return; }
    const live = rows.filter((row) => row.isActive);
    const lost = rows.filter(isUndelivered);
    const each = (method) => async () => {
      for (const row of lost) await change(method, { target: row.sessionKey });
      this.#clearSelection();
    };
    refill(this.chosenBar, el("b", { class: "grow" }, `${plural(rows.length, "run")} selected`),
      lost.length > 0 && button("Deliver again", { kind: "small", ico: "retry", act: each("undelivered.retry") }),
      lost.length > 0 && button("Dismiss", { kind: "small", ico: "x", act: each("undelivered.dismiss") }),
      live.length > 0 && button(live.length === 1 ? "Kill" : `Kill ${live.length}`, { kind: "small danger", ico: "kill", "data-key": "kill", act: () => { this.grid.focus(); actions.kill(...live); } }), // the dialog gives the focus back to the table
      button("Clear", { kind: "small ghost", act: () => this.#clearSelection() }));
  }
}

// ---- cells

const shown = new WeakMap();

/** Fill an element only if `is`, which stands for its content, has changed. */
function show(element, is, make = () => is) {
  if (shown.get(element) === is) return;
  shown.set(element, is);
  fill(element, make());
}

const isBefore = (row, from) => row.endedAt !== null && row.endedAt < from && !row.isActive && urgency(row) === 0;
const whenWords = (row) => (row.endedAt === null ? `since ${clock(row.startedAt ?? row.createdAt)}` : `${hm(row.startedAt ?? row.createdAt)} to ${hm(row.endedAt)}`);

function tries(row) {
  const words = [`attempt ${row.attempt}`, row.crashes > 0 && `${plural(row.crashes, "crash", "crashes")}`].filter(Boolean).join(", ");
  return el("span", { title: words }, row.attempt > 1 ? el("b", { "aria-hidden": "true" }, `×${row.attempt}`) : el("span", { class: "faint", "aria-hidden": "true" }, row.crashes ? "" : "1"),
    row.crashes > 0 && el("span", { class: "c-error" }, icon("bolt", 13)), el("span", { class: "sr" }, words));
}

/** Fill the last cell: what the run does, what it waits for, or why it failed. */
function drawNow(cell, row, tone) {
  const words = row.now?.text ?? row.error;
  show(cell, `${row.now?.kind} ${tone} ${words}`, () => {
    set(cell, "title", words);
    if (row.now === null) return words && el("span", { class: tone === "killed" ? "faint" : "c-error" }, words);
    if (row.now.kind !== "tool") return el("span", { class: urgency(row) > 0 ? `c-${tone} strong` : null }, words);
    const [tool, ...rest] = words.split(" ");
    return [el("b", null, tool), " ", el("span", { class: "mono" }, rest.join(" "))];
  });
}
