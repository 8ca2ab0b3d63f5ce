// Making elements. Words of models, children and tools are hostile: they become text nodes here and nothing else, with
// what would act on a reader's eyes (escape codes, changes of writing direction) made visible.

const ACTING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** The text with every character that acts instead of showing replaced by one that shows. */
export function plain(text) {
  return String(text ?? "").replaceAll("\r\n", "\n").replace(ACTING, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** An element. Properties are attributes, but for `on` (listeners); strings among the children become text. */
export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "on") for (const [event, heard] of Object.entries(value)) made.addEventListener(event, heard);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined).map(node));
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(plain(child));
}

export const byId = (id) => document.getElementById(id);

/** A block of words as they were written. */
export const words = (text) => el("div", { class: "words", dir: "auto" }, text);

/** A button that does something once at a time; what goes wrong is told by `failed`. */
export function button(text, act, failed, kind = "") {
  const made = el("button", { type: "button", class: kind }, text);
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await act();
    } catch (error) {
      failed(error);
    } finally {
      made.disabled = false;
    }
  });
  return made;
}

/** A button that must be pressed twice; it goes back to what it was when it loses the focus. */
export function confirmed(text, question, act, failed) {
  const made = button(text, () => { calm(); return act(); }, failed, "danger");
  let sure = false;
  const calm = () => { sure = false; made.textContent = text; };
  // The first press is caught before the button acts on it: a button that is disabled, even for a moment, loses the focus.
  made.addEventListener("click", (event) => {
    if (sure) return;
    event.stopImmediatePropagation();
    sure = true;
    made.textContent = question;
  }, { capture: true });
  made.addEventListener("blur", () => { if (!made.disabled) calm(); });
  return made;
}

/** Wait until nothing in this part is being pressed, for a second at most: a link that is replaced under a finger is never
 * clicked. */
export const released = (part) => new Promise((done) => {
  if (!part.matches(":active")) { done(); return; }
  setTimeout(done, 1000);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(done), { once: true });
});

/** Run `work` after each call, never twice at once, and once more if it was called meanwhile. */
export function coalesced(work, failed) {
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
        failed(error);
      } finally {
        running = null;
      }
    })();
    return running;
  };
}

/** A time, given in milliseconds since the epoch, as people read it. */
export function clock(at) {
  if (at === null || at === undefined) return "";
  const day = new Date(at);
  const today = day.toDateString() === new Date().toDateString();
  return today ? day.toLocaleTimeString() : day.toLocaleString();
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const TONES = { ok: "good", error: "bad", timeout: "bad", unknown: "bad", running: "busy", awaiting_approval: "busy" };

/** How a run stands, for people: on the wire a kill is an error that ended as killed. */
export const standing = (run) => (run.endedReason === "killed" ? "killed" : run.status);

/** Until when a run pauses and why, where no model can answer it now; else nothing. */
export const pause = (run) => (run.retryReason ? ` retrying at ${clock(run.retryAt)}: ${run.retryReason}` : "");

/** A word for how a run stands, with a colour that says no more than the word does. */
export function chip(status) {
  return el("span", { class: "chip", "data-tone": TONES[status] ?? "" }, status.replaceAll("_", " "));
}

export const runLink = (key, text, more = {}) => el("a", { href: `#/run/${encodeURIComponent(key)}`, ...more }, text);
