// The present, by the gateway's clock. All times on the page are the gateway's; this computer's clock may be wrong.

const ROUGHLY_MS = 1000; // a smaller difference is ignored: ages must not jump

let ahead = 0; // how far the gateway's clock is ahead of this one

/** The time at the gateway now. */
export const present = () => Date.now() + ahead;

/** Learn from an answer that has just come: its time at the gateway was `at`, and the request took `tookMs`. */
export function learnTime(at, tookMs) {
  const found = at + tookMs / 2 - Date.now();
  if (Math.abs(found - ahead) > Math.max(ROUGHLY_MS, tookMs / 2)) ahead = found;
}
