// A list of which only the rows on screen are in the document, so that ten thousand are no more work than forty. All rows
// have one height. The owner decides how a row looks and which row is current.

import { arrange } from "./dom.js";

const OVERSCAN = 6; // rows above and below the screen, for scrolling and for find-in-page

/** @typedef {object} Item an element of the list
 * @property {HTMLElement} node
 * @property {(line: object, index: number) => void} update let it show a line
 */

export class VirtualList {
  #lines = [];
  #items = new Map(); // by key of a line: its Item, while it is in the document
  #pinned = -1;

  /** `scroller` scrolls `body`, which holds the rows; `top()` is the height of what stands above them and stays there;
   * `rowHeight()` is a row's; `keyOf(line)` names a line; `make(line)` answers its Item; `seen(first, last)` is called
   * with the indexes of the lines that are on screen. */
  constructor({ scroller, body, top, rowHeight, keyOf, make, seen }) {
    Object.assign(this, { scroller, body, top, rowHeight, keyOf, make, seen });
    let isDue = false;
    scroller.addEventListener("scroll", () => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(() => { isDue = false; this.paint(); });
    }, { passive: true });
  }

  /** How many rows fit on the screen. */
  get pageSize() { return Math.max(1, Math.floor((this.scroller.clientHeight - this.top()) / this.rowHeight()) - 1); }

  /** Keep the row of this line in the document at any scroll position: screen readers find it by its id. */
  pin(index) { this.#pinned = index; }

  /** Show these lines instead. The line at the top of the screen stays there, if it is still in the list. */
  set(lines) {
    const { scroller } = this;
    const height = this.rowHeight();
    const at = Math.floor(scroller.scrollTop / height);
    const anchor = scroller.scrollTop > 0 && this.#lines[at] ? this.keyOf(this.#lines[at]) : null;
    const rest = scroller.scrollTop - at * height;
    this.#lines = lines;
    this.body.style.height = `${lines.length * height}px`;
    if (anchor !== null && (lines[at] === undefined || this.keyOf(lines[at]) !== anchor)) {
      const now = lines.findIndex((line) => this.keyOf(line) === anchor);
      if (now >= 0) scroller.scrollTop = now * height + rest;
    }
    this.paint();
  }

  /** Have the rows on screen show their lines as they are now. */
  paint() {
    const { scroller } = this;
    const height = this.rowHeight();
    const top = this.top();
    this.body.style.height = `${this.#lines.length * height}px`;
    const first = Math.floor(scroller.scrollTop / height);
    const last = Math.ceil((scroller.scrollTop + scroller.clientHeight - top) / height) - 1;
    const wanted = [];
    for (let n = Math.max(0, first - OVERSCAN); n <= Math.min(this.#lines.length - 1, last + OVERSCAN); n += 1) wanted.push(n);
    if (this.#lines[this.#pinned] && !wanted.includes(this.#pinned)) wanted.push(this.#pinned);
    wanted.sort((one, other) => one - other);
    const items = new Map();
    for (const n of wanted) {
      const line = this.#lines[n];
      const key = this.keyOf(line);
      const item = this.#items.get(key) ?? this.make(line);
      item.update(line, n);
      item.node.style.transform = `translateY(${n * height}px)`;
      items.set(key, item);
    }
    this.#items = items;
    arrange(this.body, [...items.values()].map(({ node }) => node));
    this.seen?.(first, last);
  }

  /** Scroll so far that this line is on screen. */
  show(index) {
    const { scroller } = this;
    const height = this.rowHeight();
    const room = scroller.clientHeight - this.top();
    const y = index * height;
    if (y < scroller.scrollTop) scroller.scrollTop = y;
    else if (y + height > scroller.scrollTop + room) scroller.scrollTop = y + height - room;
  }
}
