// Numbers and times as people read them. Times on the wire are milliseconds since the epoch.

import { present } from "./time.js";

const pad = (number) => String(number).padStart(2, "0");

/** 14:31:58, in the reader's time zone. */
export const clock = (at) => { const day = new Date(at); return `${hm(at)}:${pad(day.getSeconds())}`; };

/** 14:31 */
export const hm = (at) => { const day = new Date(at); return `${pad(day.getHours())}:${pad(day.getMinutes())}`; };

/** A time in a list: today 14:31, this week Tue, else 3 Mar; of another year with the year. */
export function when(at, now = present()) {
  const day = new Date(at);
  const today = new Date(now);
  if (day.toDateString() === today.toDateString()) return hm(at);
  if (Math.abs(now - at) < 6 * 86_400_000) return day.toLocaleDateString([], { weekday: "short" });
  const year = day.getFullYear() === today.getFullYear() ? {} : { year: "numeric" };
  return day.toLocaleDateString([], { day: "numeric", month: "short", ...year });
}

/** A time to come: 14:31 if that is today, else with the day. */
export const until = (at, now = present()) => (new Date(at).toDateString() === new Date(now).toDateString() ? hm(at) : `${when(at, now)} ${hm(at)}`);

/** A time in full, for titles. */
export const full = (at) => new Date(at).toLocaleString();

/** Today, Yesterday, or the date: the heading of a day in a conversation. */
export function dayName(at, now = present()) {
  const day = new Date(at);
  if (day.toDateString() === new Date(now).toDateString()) return "Today";
  if (day.toDateString() === new Date(now - 86_400_000).toDateString()) return "Yesterday";
  return day.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", year: "numeric" });
}

/** How long: 320 ms, 4.2 s, 42 s, 7m 48s, 3h 05m, 2d 4h. */
export function span(ms) {
  const seconds = Math.max(0, ms / 1000);
  if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${pad(Math.floor(seconds % 60))}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ${pad(Math.floor((seconds % 3600) / 60))}m`;
  return `${Math.floor(seconds / 86_400)}d ${Math.floor((seconds % 86_400) / 3600)}h`;
}

/** An age that ticks: whole seconds, never below one. */
export const age = (ms) => (ms < 10_000 ? `${Math.max(1, Math.floor(ms / 1000))} s` : span(ms));

/** 812, 14.2k, 632k, 1.3M; a dash if it is not known. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  if (number < 1000) return String(number);
  if (number < 99_950) return `${(number / 1000).toFixed(1)}k`;
  if (number < 999_500) return `${Math.round(number / 1000)}k`;
  return `${(number / 1e6).toFixed(1)}M`;
}

/** $3.91, $0.0021; a dash if no price is known. */
export function usd(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  return `$${dollars.toFixed(dollars > 0 && dollars < 0.005 ? 4 : 2)}`;
}

/** 31 kB, 2.3 MB, 74 GB */
export function bytes(number) {
  if (number < 1000) return `${number} B`;
  if (number < 999_500) return `${Math.round(number / 1000)} kB`;
  if (number < 999_500_000) return `${(number / 1e6).toFixed(1)} MB`;
  return `${(number / 1e9).toFixed(number < 99.5e9 ? 1 : 0)} GB`;
}

/** 1 run, 2 runs */
export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** Words as a sentence: a capital first, a stop at the end. */
export const sentence = (words) => (words ? `${words[0].toUpperCase()}${words.slice(1)}${/[.!?…]$/.test(words) ? "" : "."}` : "");

/** The beginning of a text in one line. */
export function short(text, most = 80) {
  const line = text.slice(0, 4 * most).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)} …` : line;
}
