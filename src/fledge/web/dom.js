// Making elements. Words of models, children and tools are hostile: they become text nodes and nothing else, and
// characters that act on a reader (escape codes, changes of writing direction) are made visible. Positions are set
// through the CSSOM (`css`), because the page's policy forbids style attributes. This file knows nothing of fledge.

import { whenReleased } from "./press.js";

const ACTING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** The text with every character that acts instead of showing (`ACTING`) replaced by a visible sign. */
export function plain(text) {
  return String(text ?? "").replaceAll("\r\n", "\n").replace(ACTING, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** Attributes whose words reach a person: tooltips, names for screen readers, hints and texts of fields, file names. */
const READ = new Set(["alt", "aria-description", "aria-label", "aria-roledescription", "aria-valuetext", "download", "label", "placeholder", "summary", "title", "value"]);

/** Set an attribute. Every attribute that a person reads is set here, so that none of its characters acts. */
export const set = (element, name, value) => element.setAttribute(name, READ.has(name) ? plain(value) : String(value));

/** Set the name of the tab. */
export const setTitle = (words) => { document.title = plain(words); };

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(element, value);
    else if (name === "css") for (const [property, one] of Object.entries(value)) element.style.setProperty(property, one);
    else set(element, name, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}

const listeners = new WeakMap(); // by element: its handlers, by event
const hear = (event) => listeners.get(event.currentTarget)[event.type]?.(event);

/** Let an element have these handlers, and none of those that it had: so handlers can be replaced. */
function listen(element, table) {
  listeners.set(element, table);
  for (const event of Object.keys(table)) element.addEventListener(event, hear);
}

/** Children as nodes: strings become text, nothing (null, undefined, false, "") is left out, arrays are flattened. */
const nodes = (children) => children.flat(Infinity)
  .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
  .map((child) => (child instanceof Node ? child : document.createTextNode(plain(child))));

/** An element. `given` holds attributes, `on` (listeners by event) and `css` (properties). */
export const el = (tag, given, ...children) => filled(document.createElement(tag), given, children);

/** An SVG element, as `el`. */
export const svg = (tag, given, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), given, children);

/** Replace all children of an element by these. */
export const fill = (element, ...children) => element.replaceChildren(...nodes(children));

export const byId = (id) => document.getElementById(id);

/** Have a screen reader say something, once. */
export const announce = (words) => { byId("says").textContent = plain(words); };

/** Show an error to the person, wherever it occurred; `again` does once more what failed. The frame listens for this
 * event. */
export const fail = (error, again = null) => { dispatchEvent(new CustomEvent("failure", { detail: { error, again } })); };

const PATHS = {
  agents: "M3.5 6h9v6.5h-9zM8 6V3.2M6 9h.01M10 9h.01M1.8 8.5v2M14.2 8.5v2",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  back: "M13 8H3M7 4 3 8l4 4",
  bolt: "M9 1.8 3.5 9H8l-1 5.2L12.5 7H8z",
  brain: "M8 3.2c-2-1.6-5 .1-4.3 2.6C2 6.8 2 9.4 3.8 10.2 4 12.8 6.8 13.6 8 12zM8 3.2c2-1.6 5 .1 4.3 2.6 1.7 1 1.7 3.6-.1 4.4C12 12.8 9.2 13.6 8 12M8 3.2V12",
  branch: "M4.5 2.5v11M4.5 9c0-3 7-1.5 7-5M11.5 4V2.5M4.5 13.5h.01",
  chat: "M3 4.5h10v6.5H7l-2.8 2.3V11H3z",
  check: "M3 8.5 6.5 12 13 4.5",
  clip: "M12.5 7.5 8 12a3 3 0 0 1-4.2-4.2l5-5a2 2 0 0 1 2.8 2.8l-5 5a1 1 0 0 1-1.4-1.4L9.5 5",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M8 4.8V8l2.2 1.6",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  down: "M3.5 6 8 10.5 12.5 6",
  edit: "M3 13l.6-3L10.8 2.8l2.4 2.4L6 12.4zM9.3 4.3l2.4 2.4",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  folder: "M2 4h4l1.5 1.5H14V13H2z",
  gear: "M8 10.2A2.2 2.2 0 1 0 8 5.8a2.2 2.2 0 0 0 0 4.4M8 1.8v1.8M8 12.4v1.8M1.8 8h1.8M12.4 8h1.8M3.6 3.6l1.3 1.3M11.1 11.1l1.3 1.3M12.4 3.6l-1.3 1.3M4.9 11.1l-1.3 1.3",
  globe: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12M2 8h12M8 2c2 2 2.4 4 2.4 6S10 12 8 14c-2-2-2.4-4-2.4-6S6 4 8 2",
  hand: "M5 8V4.2a1 1 0 0 1 2 0V7M7 6.8V3a1 1 0 0 1 2 0v4M9 7V4a1 1 0 0 1 2 0v5c0 3-1.6 5-4 5-2 0-3-1-4.3-3.6-.6-1.2.9-1.9 1.6-.9L5 10.5",
  json: "M6 2.5H5A1.5 1.5 0 0 0 3.5 4v2.5L2 8l1.5 1.5V12A1.5 1.5 0 0 0 5 13.5h1M10 2.5h1A1.5 1.5 0 0 1 12.5 4v2.5L14 8l-1.5 1.5V12a1.5 1.5 0 0 1-1.5 1.5h-1",
  key: "M5.5 12.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M7.3 8.2 13 2.5M11 4.5l1.7 1.7",
  kill: "M5.3 2h5.4L14 5.3v5.4L10.7 14H5.3L2 10.7V5.3zM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
  mail: "M2.5 4h11v8h-11zM2.5 4.5 8 9l5.5-4.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  out: "M6 3H3v10h3M7 8h7M11 5l3 3-3 3",
  panel: "M2.5 3h11v10h-11zM10 3v10",
  plan: "M3.5 2.5h9v11h-9zM6 5.5h4M6 8h4M6 10.5h2",
  plus: "M8 3v10M3 8h10",
  pulse: "M1.5 8.5h3l2-5 3 9 2-4h3",
  retry: "M13 3v3.5H9.5M13 6.2A5.3 5.3 0 1 0 13.3 9",
  right: "M6 3.5 10.5 8 6 12.5",
  runs: "M2.5 4h6M5 8h8.5M5 12h5M2.5 8h.01M2.5 12h.01",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.3 10.3 14 14",
  send: "M2.5 8 13.5 3l-3 10-3-4z",
  steer: "M3 13V9a3 3 0 0 1 3-3h7M9.5 2.5 13 6 9.5 9.5",
  stop: "M4.5 4.5h7v7h-7z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  term: "M2 3h12v10H2zM4.5 6 6.5 8l-2 2M8 10.5h3.5",
  up: "M8 13V3.5M3.8 7.5 8 3.3l4.2 4.2",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.3h.01",
  x: "M4 4l8 8M12 4l-8 8",
  you: "M8 2.5a3.6 3.6 0 0 1 3.6 3.6c0 3.4 1.4 4.4 1.4 4.4H3s1.4-1 1.4-4.4A3.6 3.6 0 0 1 8 2.5M6.7 13a1.5 1.5 0 0 0 2.6 0",
  zoomin: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.3 10.3 14 14M5 7h4M7 5v4",
  zoomout: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M10.3 10.3 14 14M5 7h4",
};

/** A picture of a thing or an action, for beside words; a screen reader does not read it. */
export function icon(name, size = 16) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" },
    svg("path", { d: PATHS[name] ?? PATHS.more, fill: "none", stroke: "currentColor", "stroke-width": 1.4, "stroke-linecap": "round", "stroke-linejoin": "round" }));
}

const stroke = (d, width, more) => svg("path", { d, fill: "none", stroke: "currentColor", "stroke-width": width, "stroke-linecap": "round", "stroke-linejoin": "round", ...more });
const ring = (more) => svg("circle", { cx: 8, cy: 8, r: 5.6, fill: "none", stroke: "currentColor", "stroke-width": 1.6, ...more });
const disc = () => svg("circle", { cx: 8, cy: 8, r: 6.4, fill: "currentColor" });
const cut = (d, width = 1.7) => svg("path", { d, fill: "none", class: "cut", "stroke-width": width, "stroke-linecap": "round", "stroke-linejoin": "round" });

const SHAPES = {
  announcing: () => [ring(), stroke("M8 11V5.4M5.8 7.4 8 5.2l2.2 2.2", 1.5)],
  ending: () => [ring(), svg("rect", { x: 6, y: 6, width: 4, height: 4, fill: "currentColor" })],
  error: () => [disc(), cut("M5.9 5.9l4.2 4.2M10.1 5.9l-4.2 4.2")],
  giveup: () => [svg("rect", { x: 1.6, y: 3.4, width: 12.8, height: 9.4, rx: 2, fill: "currentColor" }), cut("M4.4 6 8 8.8 11.6 6", 1.5)],
  killed: () => [ring(), stroke("M4.3 11.7 11.7 4.3", 1.6)],
  ok: () => [disc(), cut("M5.2 8.2 7.2 10.2 10.9 6")],
  plan: () => [disc(), cut("M5.6 6h4.8M5.6 8.3h4.8M5.6 10.6h2.4", 1.3)],
  queued: () => [ring({ "stroke-dasharray": "2.2 2.2" })],
  running: () => [ring({ "stroke-opacity": 0.28 }), stroke("M8 2.4A5.6 5.6 0 0 1 13.6 8", 1.8, { class: "spin" })],
  spawning: () => [ring({ "stroke-dasharray": "1 2.5" })],
  stuck: () => [svg("path", { d: "M8 1.8 15 14H1z", fill: "currentColor", stroke: "currentColor", "stroke-linejoin": "round" }), cut("M8 6.2v3.4M8 11.8h.01")],
  timeout: () => [disc(), cut("M8 5v3.2l2 1.3")],
  waiting: () => [ring(), stroke("M8 5v3l2 1.3", 1.5)],
  you: () => [disc(), cut("M8 4.6v4M8 11.2h.01")],
};

/** The sign of a tone (see standing.js): its shape says it, its colour repeats it. */
export function glyph(tone, size = 16) {
  return svg("svg", { class: `glyph g-${tone}`, viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" }, (SHAPES[tone] ?? SHAPES.queued)());
}

/** Keys as keycaps; a screen reader has them from `aria-keyshortcuts`. */
export const kbd = (...keys) => el("span", { class: "keys", "aria-hidden": "true" }, keys.map((key) => el("kbd", null, key)));

/** A button. `act` may be async: while it runs, further clicks do nothing. Its errors are shown to the person. */
export function button(words, { kind = "", ico, key, label, title, act, ...more } = {}) {
  return el("button", { type: "button", class: `btn ${kind}`.trim(), "aria-label": label, title: title ?? (words ? null : label), "aria-keyshortcuts": key, ...more,
    on: act && { click: (event) => onceAtATime(event.currentTarget, () => act(event)) } },
  ico && icon(ico), words && el("span", null, words), key && kbd(key));
}

const busy = new WeakSet(); // buttons whose `act` runs

async function onceAtATime(made, act) {
  if (busy.has(made)) return;
  busy.add(made);
  // Not `disabled`: a disabled button loses the focus.
  set(made, "aria-disabled", "true");
  try {
    await act();
  } catch (error) {
    fail(error, () => onceAtATime(made, act));
  } finally {
    busy.delete(made);
    made.removeAttribute("aria-disabled");
  }
}

/** A button that copies a text. */
export const copyButton = (text, label) => button("", { kind: "ghost tiny", ico: "copy", label, act: async () => {
  await navigator.clipboard.writeText(text);
  announce("copied");
} });

/** Answers a function that calls `draw` at the next frame at which nothing is pressed; calls until then do nothing. */
export function oncePerFrame(draw) {
  let isDue = false;
  const go = () => whenReleased(() => { isDue = false; draw(); });
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(go);
  };
}

/** Answers a function that runs `work`: never twice at once, and once more if it was called meanwhile. */
export function coalesced(work) {
  let running = null;
  let again = false;
  return () => {
    if (running !== null) { again = true; return running; }
    running = (async () => {
      try {
        do {
          again = false;
          await work();
        } while (again);
      } catch (error) {
        fail(error);
      } finally {
        running = null;
      }
    })();
    return running;
  };
}

// ---- updating elements in place
//
// The content of an element may change while a person is about to press it, has the focus on it or has selected its
// words. So elements are not replaced: each one becomes like the new one that is made for its place. Two elements are
// the same if they have the same name (`nameOf`); a control never becomes one with another name, because that may act
// otherwise. If the control that had the focus is gone, the focus goes to the one with the same name, else to the
// focusable element around them.

const NAMED = "a[href], button, input, textarea, select";
const STOPS = `${NAMED}, summary`;
const isStop = (node) => node.nodeType === Node.ELEMENT_NODE && node.matches(STOPS);
const spoken = (stop) => stop.dataset.key ?? stop.getAttribute("href") ?? stop.getAttribute("aria-label") ?? (stop.matches("summary") ? "" : stop.textContent);

/** The name of a node: its tag, and its `data-key`, else the name of the first control (itself, or one in it). */
function nameOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const stop = isStop(node) ? node : node.querySelector(NAMED);
  return `${node.nodeName} ${node.dataset.key ?? (stop ? spoken(stop) : "")}`;
}

const alone = new WeakSet();

/** Mark an element that is never updated in place, only replaced: other code holds it, or it has a state of its own. */
export function anew(element) {
  alone.add(element);
  return element;
}

const mayBecome = (old, made) => old.nodeName === made.nodeName && !alone.has(old) && !alone.has(made);

/** Let an element have these children; an old child with the same name stays, and becomes like the new one. */
export function refill(element, ...children) {
  const give = focusOf(element);
  becomeAll(element, nodes(children));
  give(element);
}

/** Let an element become like `made`, or else replace it by `made`. Answers the one that is in the document then. */
export function renew(old, made) {
  const give = focusOf(old);
  const now = mayBecome(old, made) ? old : made;
  if (now === old) become(old, made);
  else old.replaceWith(made);
  give(now);
  return now;
}

function become(old, made) {
  if (old.nodeType !== Node.ELEMENT_NODE) { say(old, made.data); return; }
  // Open details stay open, and a button whose `act` runs stays disabled.
  const isOwn = (name) => name === "style" || name === "open" || (name === "aria-disabled" && busy.has(old));
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value && !isOwn(name)) set(old, name, value);
  if (old.style.cssText !== made.style.cssText) old.style.cssText = made.style.cssText;
  if (listeners.has(old) || listeners.has(made)) listen(old, listeners.get(made) ?? {});
  becomeAll(old, [...made.childNodes]);
}

function becomeAll(parent, wanted) {
  const isWanted = new Set(wanted);
  const free = [...parent.childNodes].filter((node) => !isWanted.has(node) && !alone.has(node));
  const isFree = new Set(free);
  const next = (named) => { const old = named?.shift(); isFree.delete(old); return old; };
  const isThere = (node) => node.parentNode === parent || alone.has(node);
  const byName = Map.groupBy(free, nameOf);
  const same = wanted.map((node) => (isThere(node) ? undefined : next(byName.get(nameOf(node)))));
  // An element that is no control may become any other of the same tag.
  const holders = Map.groupBy(free.filter((node) => isFree.has(node) && !isStop(node)), (node) => node.nodeName);
  place(parent, wanted.map((node, n) => {
    const old = same[n] ?? (isThere(node) || isStop(node) ? undefined : next(holders.get(node.nodeName)));
    if (old) become(old, node);
    return old ?? node;
  }));
}

/** Change a text node; if text is only appended, a selection stays. */
function say(text, words) {
  if (words.startsWith(text.data)) { if (words !== text.data) text.appendData(words.slice(text.data.length)); } else text.data = words;
}

/** Set the text of an element. It is not touched if it has that text already. */
export function write(element, words) {
  const shown = plain(words);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Remembers the focus in an element. Answers a function that restores it if the focused element is gone, in `element`
 * or in the one that replaced it. */
function focusOf(element) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const around = focused && element.parentElement?.closest("[tabindex]");
  return (now) => {
    if (!focused || focused.isConnected) return;
    const found = focused === element ? now : [...now.querySelectorAll(STOPS)].find((stop) => spoken(stop) === spoken(focused)) ?? around;
    found?.focus({ preventScroll: true });
  };
}

/** Let `parent` hold exactly the nodes of `wanted`, in this order. Nodes that stay are not touched, so that focus, text
 * selection and open details survive. */
export function arrange(parent, wanted) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  place(parent, wanted);
  if (focused && !focused.isConnected) parent.closest("[tabindex]")?.focus({ preventScroll: true });
}

function place(parent, wanted) {
  const kept = new Set(wanted);
  for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove();
  const still = wanted.find((node) => node.parentNode === parent && node.contains(document.activeElement));
  const select = selectionOf(parent);
  let next = parent.firstChild;
  for (const node of wanted) {
    if (node === still && node !== next) {
      // A node that is moved loses the focus, so the others go around it.
      while (next !== still) {
        const after = next.nextSibling;
        parent.insertBefore(next, still.nextSibling);
        next = after;
      }
    }
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  select();
}

/** Remembers the selection in an element. Answers a function that restores it if it was lost. */
function selectionOf(element) {
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = getSelection();
  if (isCollapsed || !element.contains(anchorNode)) return () => {};
  return () => { if (getSelection().isCollapsed && anchorNode.isConnected && focusNode.isConnected) getSelection().setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset); };
}
