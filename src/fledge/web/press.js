// While something is pressed, no news from the gateway changes the page. A click counts only if the pointer goes down
// and up on the same element: an element that is replaced or moves between the two would lose the click, or another one
// would get it. So all drawing because of news waits here for the release: draws of the store and of a view
// (`oncePerFrame`), and answers of the gateway. The work of every second is skipped meanwhile. Actions of the person
// are drawn at once.
//
// This file knows nothing of the page.

const CLICK_MS = 350; // after a release: a finger's click may come so late
const LONGEST_MS = 10_000; // not every release has an event, and the page must not stand still because of that

let isPointerDown = false;
let isHeld = false; // something is pressed, or its click may still come
let heldAt = 0; // when the present hold began
let heldBefore = 0; // how long all earlier holds took, in ms
let ending = 0;
const waiting = [];

/** Act now, or once nothing is pressed any more. */
export function whenReleased(act) {
  if (isHeld) waiting.push(act);
  else act();
}

/** Resolves once nothing is pressed. */
export const released = () => new Promise((go) => { whenReleased(go); });

/** True while something is pressed. */
export const isPressed = () => isHeld;

/** For how many ms something has been pressed in all: work that waits for a release takes that much longer. */
export const heldMs = () => heldBefore + (isHeld ? performance.now() - heldAt : 0);

function press() {
  if (!isHeld) heldAt = performance.now();
  isHeld = true;
  end(LONGEST_MS);
}

/** A release has happened, or was missed. Its click may follow. */
function release(afterMs = CLICK_MS) {
  isPointerDown = false;
  if (isHeld) end(afterMs);
}

function end(afterMs) {
  clearTimeout(ending);
  ending = setTimeout(() => {
    heldBefore = heldMs();
    isHeld = false;
    for (const act of waiting.splice(0)) {
      try { act(); } catch (error) { reportError(error); }
    }
  }, afterMs);
}

/** True if the space bar presses this element, which it does when it goes up. */
const isPressedByKey = (target) => Boolean(target.closest?.("button, summary, input[type=checkbox], input[type=radio]"));

const listen = (name, hear) => addEventListener(name, hear, { capture: true, passive: true });
// The list of a select is above the page and may swallow the release; no select is ever replaced.
listen("pointerdown", (event) => {
  if (!event.isPrimary || event.button > 1 || event.target.closest?.("select")) return;
  isPointerDown = true;
  press();
});
listen("pointerup", (event) => { if (event.isPrimary) release(); });
listen("pointermove", (event) => { if (isPointerDown && event.isPrimary && event.buttons === 0) release(); });
listen("keydown", (event) => { if (event.key === " " && isPressedByKey(event.target)) press(); });
listen("keyup", (event) => { if (event.key === " ") release(); });
for (const name of ["click", "auxclick", "pointercancel", "contextmenu"]) listen(name, () => release(0));
listen("blur", (event) => { if (event.target === globalThis) release(0); });
