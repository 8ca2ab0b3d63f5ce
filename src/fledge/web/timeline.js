// One run drawn in lanes over time, from `runs.spans`: zoom, pan, choose a span. It is never the only source: the list
// of events and the transcript say the same in words. Only the spans in the window are drawn, and spans too small to be
// distinguished are drawn as one, so that the cost of a picture depends on its width, not on the length of the run.

import { ticks } from "./axis.js";
import { marksOf, parts } from "./bars.js";
import { button, el, fill, set, svg, write } from "./dom.js";
import { clock, count, plural, span as lasts } from "./format.js";
import { runPath } from "./names.js";
import { standing } from "./standing.js";
import { present } from "./time.js";

const LANES = [["phase", "Phase", 14], ["attempts", "Attempts", 18], ["model", "Model", 18], ["tools", "Tools", 18], ["children", "Children", 20], ["waits", "Waits", 16], ["delivery", "Delivery", 18]];
const OVERVIEW = { model: 4, tools: 11, children: 18, waits: 24 }; // where a lane is in the overview
const MARKS = { crashed: ["crash", "bad"], resumed: ["resumed", "ok"], steered: ["steered", "you"], killed: ["killed", "bad"], restarted: ["restart", "soft"], plan_approved: ["approved", "ok"], plan_rejected: ["changes", "you"] };
const LEGEND = [["model", "model"], ["tools", "tool"], ["bad", "failed"], ["waits", "waits"], ["children", "child"]];
const GAP = 3; // between rows of a lane
const LEAST_MS = 200; // that a window shows
const TWICE_MS = 500; // between the clicks of a double click
const TICK_PX = 85;
const LEAST_PX = 20; // that words on a span need
const NARROW_PX = 520; // in a narrower picture, names of lanes stand above them
const MOST_ROWS = 12; // of a lane; spans that would need more rows overlap in the last one

/** @typedef {object} Drawn a span of the wire, with its lane's row and its end: now, if it goes on */

export class Timeline {
  #drawn = [];
  #marks = [];
  #lanes = [];
  #whole = [0, 1];
  #window = null; // null: the whole
  #chosen = null;
  #width = 900;
  #height = 60;
  #isNarrow = false;

  /** `childRow(key)` answers the row of a child, if it is known. `shows(span)` shows the entry of a call. */
  constructor({ childRow, shows }) {
    Object.assign(this, { childRow, shows });
    this.names = el("div", { class: "tlnames", "aria-hidden": "true" });
    this.picture = svg("svg", { class: "tlsvg", role: "img" });
    this.overview = svg("svg", { class: "tlover", height: 30, "aria-hidden": "true" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.told = el("p", { class: "tltold", "aria-live": "polite" });
    this.box = el("div", { class: "tlbox", id: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline. Plus and minus zoom, arrows pan, 0 shows all, brackets choose a span." }, this.picture, this.tip);
    this.note = el("span", { class: "soft" });
    this.element = el("section", { class: "tl block", "aria-label": "Timeline" },
      el("header", { class: "blockhead" }, el("h2", null, "Timeline"), el("div", { class: "legend only-wide", "aria-hidden": "true" }, LEGEND.map(([kind, words]) => el("span", { class: `key kk-${kind}` }, el("i"), words))),
        el("span", { class: "grow" }), this.note,
        button("", { kind: "ghost", ico: "zoomout", label: "Zoom out", act: () => this.zoom(1.6) }),
        button("", { kind: "ghost", ico: "zoomin", label: "Zoom in", act: () => this.zoom(0.6) }),
        button("Fit", { kind: "small", ico: "fit", act: () => this.fit() })),
      el("div", { class: "tlgrid" }, this.names, this.box), el("div", { class: "tlgrid" }, el("span"), this.overview), this.told);
    this.#listen();
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.box);
  }

  end() { this.resized.disconnect(); }

  /** Show these spans and marks, as `runs.spans` answers them. */
  set({ spans, marks, leftOut }, now = present()) {
    const chosen = this.#chosen && nameOf(this.#chosen);
    this.#lanes = LANES.map(([id, name, height]) => laid(id, name, height, spans.filter((one) => one.lane === id), now)).filter((lane) => lane.spans.length);
    this.#drawn = this.#lanes.flatMap((lane) => lane.spans);
    this.#drawn.forEach((one, n) => { one.n = n; });
    this.#marks = marks;
    this.#chosen = this.#drawn.find((one) => nameOf(one) === chosen) ?? null;
    write(this.note, leftOut ? `${plural(leftOut, "older span")} left out` : "");
    this.#picture();
    this.tick(now);
  }

  /** Time has passed: open spans are longer now. */
  tick(now = present()) {
    if (!this.#drawn.length) return;
    for (const one of this.#drawn) if (one.isOpen) one.to = now;
    const from = Math.min(...this.#drawn.map((one) => one.startedAt));
    const to = Math.max(from + LEAST_MS, ...this.#drawn.map((one) => one.to), ...this.#marks.map((mark) => mark.at));
    const room = (to - from) * 0.015;
    this.#whole = [from - room, to + room];
    this.draw();
  }

  // ---- the window

  get #time() { return this.#window ?? this.#whole; }

  /** Show the time from `from` to `to`, as far as the run goes. */
  show(from, to) {
    const [first, last] = this.#whole;
    const width = Math.min(Math.max(to - from, LEAST_MS), last - first);
    const begin = Math.max(first, Math.min((from + to - width) / 2, last - width));
    this.#window = width >= last - first ? null : [begin, begin + width];
    this.draw();
  }

  fit() { this.#window = null; this.draw(); }

  /** Make the window this many times as wide, around a time. */
  zoom(factor, around = (this.#time[0] + this.#time[1]) / 2) {
    const [from, to] = this.#time;
    this.show(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** Move the window by this part of its width. */
  pan(part) {
    const [from, to] = this.#time;
    const by = (to - from) * part;
    const [first, last] = this.#whole;
    const most = Math.max(first - from, Math.min(by, last - to)); // it stops at either end, and keeps its width
    this.show(from + most, to + most);
  }

  #zoomTo(one) {
    const room = Math.max(LEAST_MS, (one.to - one.startedAt) * 0.3);
    this.show(one.startedAt - room, one.to + room);
  }

  // ---- choosing

  choose(one) {
    this.#chosen = one;
    const [from, to] = this.#time;
    if (one.to < from || one.startedAt > to) this.show(one.startedAt - (to - from) / 3, one.startedAt + ((to - from) * 2) / 3);
    fill(this.told, this.#facts(one),
      one.lane === "children" && el("a", { href: runPath(one.sessionKey) }, "Open"),
      one.seq && button("Show in transcript", { kind: "link", act: () => this.shows(one) }),
      button("Zoom to it", { kind: "link", act: () => this.#zoomTo(one) }));
    this.draw();
  }

  #step(by) {
    const inOrder = this.#drawn.filter((one) => one.lane !== "phase").sort((one, other) => one.startedAt - other.startedAt);
    const at = inOrder.indexOf(this.#chosen);
    const next = inOrder[at < 0 ? 0 : Math.max(0, Math.min(inOrder.length - 1, at + by))];
    if (next) this.choose(next);
  }

  #facts(one) {
    const time = one.to === one.startedAt ? clock(one.startedAt) : `${clock(one.startedAt)} – ${one.isOpen ? "now" : clock(one.to)} · ${lasts(one.to - one.startedAt)}`;
    const more = [one.status !== one.name && one.status.replaceAll("_", " "), one.tokens && `${count(one.tokens)} tokens`].filter(Boolean).join(" · ");
    return [el("b", null, spoken(one)), el("span", { class: "num" }, time), more && el("span", null, more), one.short && one.short !== one.name && el("span", { class: "min short" }, one.short)];
  }

  // ---- drawing

  /** Place the lanes: their names are beside them, or above them if the picture is narrow. */
  #picture() {
    const top = this.#marks.length ? 42 : 26;
    const above = this.#isNarrow ? 13 : 0;
    let y = top;
    for (const lane of this.#lanes) {
      lane.y = y + 5 + above;
      y += lane.rows * (lane.height + GAP) + 8 + above;
    }
    this.#height = y + 4;
    this.top = top;
    this.names.style.height = `${this.#height}px`;
    fill(this.names, this.#lanes.map((lane) => el("span", { css: { top: `${lane.y}px`, height: `${lane.height}px` } }, lane.name)));
    this.picture.setAttribute("height", String(this.#height));
    set(this.picture, "aria-label", `Timeline: ${this.#lanes.map((lane) => `${lane.name.toLowerCase()} ${lane.spans.length}`).join(", ")}`);
  }

  draw() {
    const width = Math.max(240, this.box.clientWidth);
    if (this.#isNarrow !== width < NARROW_PX) { this.#isNarrow = width < NARROW_PX; this.#picture(); }
    this.#width = width;
    this.picture.setAttribute("width", String(width));
    this.picture.setAttribute("viewBox", `0 0 ${width} ${this.#height}`);
    fill(this.picture, patterns(), this.#backs(), this.#grid(), this.#lanes.flatMap((lane) => this.#laneSpans(lane)), this.#markLines(), this.#nowLine());
    this.#drawOverview();
  }

  #x(at) { const [from, to] = this.#time; return ((at - from) / (to - from)) * this.#width; }

  #backs() {
    return this.#lanes.map((lane, n) => (this.#isNarrow ? svg("text", { class: "tltick", x: 0, y: lane.y - 4 }, lane.name)
      : n % 2 === 0 && svg("rect", { class: "laneback", x: 0, y: lane.y - 4, width: this.#width, height: lane.rows * (lane.height + GAP) + 5 })));
  }

  #grid() {
    const [from, to] = this.#time;
    return ticks(from, to, this.#width / TICK_PX).ticks.map(({ at, words }) => [
      svg("line", { class: "gridline", x1: this.#x(at), x2: this.#x(at), y1: 16, y2: this.#height }),
      this.#x(at) < this.#width - 52 && svg("text", { class: "tltick", x: this.#x(at) + 4, y: 13 }, words)]);
  }

  #laneSpans(lane) {
    const [from, to] = this.#time;
    const ends = new Map(); // by row and looks: where the last tiny span ended
    return lane.spans.map((one) => {
      if (one.to < from || one.startedAt > to) return null;
      const y = lane.y + one.row * (lane.height + GAP);
      const looks = `sp l-${one.lane} k-${kindOf(one)} ${one === this.#chosen ? "on" : ""} ${one.isOpen ? "open" : ""}`;
      if (one.to === one.startedAt && one.lane === "delivery") {
        const x = this.#x(one.startedAt);
        return svg("path", { class: looks, "data-n": one.n, d: `M${x} ${y + 2}l6 6.5-6 6.5-6-6.5z` });
      }
      const x = Math.max(-6, this.#x(one.startedAt));
      const width = Math.max(2, Math.min(this.#width + 6, this.#x(one.to)) - x);
      if (width <= 2 && one !== this.#chosen) {
        const name = `${one.row} ${looks}`;
        if (x < (ends.get(name) ?? -Infinity)) return null; // it would lie on one that looks the same
        ends.set(name, x + 2);
      }
      return [svg("rect", { class: looks, "data-n": one.n, x, y, width, height: lane.height, rx: Math.min(4, width / 2), fill: hatch(one) }),
        one.lane === "children" && this.#childParts(one, y, lane.height), label(one, this.#words(one), x, y, width, lane.height)];
    });
  }

  /** The words on a span. */
  #words(one) {
    if (one.lane === "model") return count(one.tokens ?? null);
    if (one.lane === "attempts") return `${one.name} · ${one.status}`;
    if (one.lane !== "children") return spoken(one);
    const row = this.childRow(one.sessionKey);
    return [one.name, row ? standing(row).word : one.status.replaceAll("_", " "), row?.crashes > 0 && "went on after a crash"].filter(Boolean).join(" · ");
  }

  /** The waits of a child, and marks for its events, drawn into its span. */
  #childParts(one, y, height) {
    const row = this.childRow(one.sessionKey);
    if (!row) return null;
    const marked = marksOf(row).filter(({ at }) => at >= this.#time[0] && at <= this.#time[1]).map(({ at, looks }) => svg("line", { class: `childmark m-${looks}`, x1: this.#x(at), x2: this.#x(at), y1: y - 1, y2: y + height + 1 }));
    const waited = parts(row, present()).filter(({ kind }) => ["queue", "waiting", "hold", "stuckhold"].includes(kind)).map(({ from, to, kind }) => {
      const x = Math.max(0, this.#x(from));
      const width = Math.min(this.#width, this.#x(Math.min(to, one.to))) - x;
      return width > 2 && svg("rect", { class: "part", x, y, width, height, fill: `url(#hatch-${{ hold: "you", stuckhold: "stuck" }[kind] ?? "calm"})` });
    });
    return [waited, marked];
  }

  #markLines() {
    let taken = -Infinity;
    return this.#marks.filter(({ at }) => at >= this.#time[0] && at <= this.#time[1]).map((mark) => {
      const [words, tone] = MARKS[mark.name] ?? [mark.name, "soft"];
      const x = this.#x(mark.at);
      const width = words.length * 6.9 + 11;
      const left = x + width > this.#width || mark.name === "crashed" && x - width > taken ? x - width : x;
      const hasRoom = left >= taken;
      if (hasRoom) taken = left + width;
      return svg("g", { class: `mark m-${tone}` }, svg("title", null, `${words} ${clock(mark.at)}${mark.reason ? `: ${mark.reason}` : ""}`),
        svg("line", { x1: x, x2: x, y1: 20, y2: this.#height }),
        hasRoom && [svg("rect", { x: left, y: 20, width, height: 16, rx: 3 }), svg("text", { x: left + 5, y: 31.5 }, words)]);
    });
  }

  #nowLine() {
    if (!this.#drawn.some((one) => one.isOpen)) return null;
    const x = this.#x(present());
    return x >= 0 && x <= this.#width && svg("line", { class: "nowline", x1: x, x2: x, y1: this.top - 4, y2: this.#height });
  }

  #drawOverview() {
    const width = Math.max(240, this.overview.clientWidth || this.#width);
    const [first, last] = this.#whole;
    const x = (at) => Math.round(((at - first) / (last - first)) * width);
    this.overview.setAttribute("viewBox", `0 0 ${width} 30`);
    this.overview.setAttribute("width", String(width));
    const seen = new Set();
    const bars = this.#drawn.filter((one) => one.lane in OVERVIEW).map((one) => {
      const left = x(one.startedAt);
      const wide = Math.max(1, x(one.to) - left);
      const place = `${one.lane} ${left} ${wide}`;
      if (seen.has(place)) return null;
      seen.add(place);
      return svg("rect", { class: `ov l-${one.lane} k-${kindOf(one)}`, x: left, width: wide, y: OVERVIEW[one.lane], height: 4 });
    });
    const [from, to] = this.#time;
    fill(this.overview, svg("rect", { class: "ovback", x: 0, y: 0, width, height: 30, rx: 5 }), bars,
      svg("rect", { class: "ovwin", x: x(from) + 0.75, y: 0.75, width: Math.max(6, x(to) - x(from) - 1.5), height: 28.5, rx: 5 }));
  }

  // ---- pointer and keys

  #listen() {
    const { box, overview } = this;
    const under = (event) => this.#drawn[Number(event.target.closest?.("[data-n]")?.dataset.n ?? -1)];
    let held = null; // where a pointer went down
    let last = { name: "", at: -Infinity };
    box.addEventListener("pointerdown", (event) => { held = { x: event.clientX, time: this.#time, hasMoved: false }; });
    box.addEventListener("pointermove", (event) => {
      if (held && event.buttons === 0) held = null;
      if (held && (held.hasMoved || Math.abs(event.clientX - held.x) > 4)) {
        held.hasMoved = true;
        const [from, to] = held.time;
        const by = ((held.x - event.clientX) / this.#width) * (to - from);
        this.show(from + by, to + by);
        this.tip.hidden = true;
        return;
      }
      this.#showTip(under(event), event);
    });
    box.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    box.addEventListener("click", (event) => {
      const one = under(event);
      const hasMoved = held?.hasMoved;
      held = null;
      if (!one || hasMoved) return;
      // The browser counts clicks on one place; on a slow machine, the event of the second one may come late.
      const isSecond = last.name === nameOf(one) && (event.detail > 1 || event.timeStamp - last.at < TWICE_MS);
      last = { name: nameOf(one), at: event.timeStamp };
      if (isSecond && one.lane === "children") location.hash = runPath(one.sessionKey);
      else if (isSecond) this.#zoomTo(one);
      else this.choose(one);
    });
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const [from, to] = this.#time;
      if (event.shiftKey) this.pan((event.deltaY || event.deltaX) / 1500);
      else this.zoom(event.deltaY > 0 ? 1.2 : 0.83, from + ((event.clientX - box.getBoundingClientRect().left) / this.#width) * (to - from));
    }, { passive: false });
    box.addEventListener("keydown", (event) => {
      if (event.metaKey || event.ctrlKey || event.altKey) return;
      const act = { "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.6), 0: () => this.fit(), ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "[": () => this.#step(-1), "]": () => this.#step(1), Enter: this.#chosen ? () => this.#zoomTo(this.#chosen) : null }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    const there = (event) => {
      const place = overview.getBoundingClientRect();
      const [first, last] = this.#whole;
      const [from, to] = this.#time;
      const width = this.#window ? to - from : (last - first) / 4;
      const middle = first + ((event.clientX - place.left) / place.width) * (last - first);
      this.show(middle - width / 2, middle + width / 2);
    };
    overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); there(event); });
    overview.addEventListener("pointermove", (event) => { if (event.buttons) there(event); });
  }

  #showTip(one, event) {
    this.tip.hidden = !one || event.pointerType === "touch";
    if (this.tip.hidden) return;
    fill(this.tip, this.#facts(one));
    const place = this.box.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(event.clientX - place.left - 20, place.width - 260))}px`;
    this.tip.style.top = `${event.clientY - place.top + 18}px`;
  }
}

// ---- spans

const nameOf = (one) => `${one.lane} ${one.startedAt} ${one.name} ${one.seq ?? ""} ${one.sessionKey ?? ""}`;

/** A lane with its spans in rows: tools and children that overlap are in rows below each other. */
function laid(id, name, height, spans, now) {
  const ends = []; // by row: where its last span ends
  const drawn = spans.map((one) => ({ short: "", status: "", ...one, isOpen: one.endedAt === undefined, to: one.endedAt ?? now }))
    .sort((one, other) => one.startedAt - other.startedAt)
    .map((one) => {
      const free = id === "tools" || id === "children" ? ends.findIndex((end) => end <= one.startedAt) : 0;
      const row = free >= 0 ? free : Math.min(ends.length, MOST_ROWS - 1);
      ends[row] = Math.max(one.to, ends[row] ?? 0);
      return { ...one, row };
    });
  return { id, name, height, rows: Math.max(1, ends.length), spans: drawn };
}

const BAD = ["error", "failed", "timeout", "unknown", "cut", "deferred"];
const YOURS = ["person", "plan", "asked"];

/** The kind of a span, which is its colour. */
function kindOf(one) {
  if (one.lane === "phase") return one.name;
  if (one.lane === "waits") return YOURS.includes(one.name) ? "you" : "calm";
  if (BAD.includes(one.status)) return "bad";
  if (YOURS.includes(one.status)) return "you";
  return one.status || "calm";
}

function hatch(one) {
  if (one.lane === "waits") return `url(#hatch-${kindOf(one) === "you" ? "you" : "calm"})`;
  return one.lane === "phase" && ["waiting", "queued", "asking", "awaiting_approval"].includes(one.name) ? `url(#hatch-${one.name.startsWith("a") ? "you" : "calm"})` : null;
}

/** A span in a few words. */
function spoken(one) {
  switch (one.lane) {
    case "phase": return one.name.replaceAll("_", " ");
    case "model": return one.name || "model";
    case "tools": return one.short || one.name;
    case "waits": return one.short || one.name;
    default: return one.name;
  }
}

function label(one, words, x, y, width, height) {
  const fitting = height < 14 ? "" : cut(words, width + Math.min(0, x) - 10);
  return fitting && svg("text", { class: `lab l-${one.lane} k-${kindOf(one)}`, x: Math.max(x, 0) + 6, y: y + height / 2 + 3.8 }, fitting);
}

const pen = document.createElement("canvas").getContext("2d");

/** As many of the words as fit into `room` pixels; empty if hardly any fit. */
function cut(words, room) {
  if (room < LEAST_PX) return "";
  pen.font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`; // as .lab in run.css
  const wide = pen.measureText(words).width;
  if (wide <= room) return words;
  let most = Math.floor((words.length * room) / wide);
  while (most > 0 && pen.measureText(`${words.slice(0, most)}…`).width > room) most -= 1;
  return most < 2 ? "" : `${words.slice(0, most)}…`;
}

const patterns = () => svg("defs", null, ["calm", "you", "stuck"].map((tone) => svg("pattern", { id: `hatch-${tone}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
  svg("rect", { width: 6, height: 6, class: `hb-${tone}` }), svg("rect", { width: 2, height: 6, class: `hf-${tone}` }))));
