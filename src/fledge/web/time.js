// The present, by the gateway's clock. All times on the page are the gateway's; this computer's clock may be wrong.

const ROUGHLY_MS = 1000; // a difference that is left alone: ages must not jump

let ahead = 0; // how far the gateway's clock is ahead of this one

/** The time at the gateway now. */
export const present = () => Date.now() + ahead;

/** The gateway has just answered that it was `at` there; the request took so long. */
export function learnTime(at, tookMs) {
  const found = at + tookMs / 2 - Date.now();
  if (Math.abs(found - ahead) > Math.max(ROUGHLY_MS, tookMs / 2)) ahead = found;
}
