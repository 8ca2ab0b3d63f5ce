// Names of sessions, and addresses of their pages.

import { el } from "./dom.js";
import { isRun } from "./store.js";
import { nameOf } from "./standing.js";
import { present } from "./time.js";

export const MAIN = "agent:main:main";

/** A session's key as the page shows it: the main agent's name is left out. */
export function shortKey(key) {
  const [, agent, ...rest] = key.split(":");
  const name = rest.join(":");
  return agent === "main" ? name : name === "main" ? agent : `${agent}: ${name}`;
}

/** A key for a conversation that begins now; its name says only that time. */
export function newKey(now = new Date(present())) {
  const pad = (number) => String(number).padStart(2, "0");
  const day = `${now.getFullYear() % 100}${pad(now.getMonth() + 1)}${pad(now.getDate())}`;
  return `agent:main:chat-${day}-${pad(now.getHours())}${pad(now.getMinutes())}${pad(now.getSeconds())}`;
}
const NEW_KEY = /^chat-\d{6}-\d{6}$/;

/** A conversation's name: its label, else its key; if the key says only a time (`newKey`), its first words. */
export function conversationName(conversation) {
  const name = shortKey(conversation.key);
  return conversation.label || (NEW_KEY.test(name) ? conversation.firstWords || "New conversation" : name);
}

export const chatPath = (key) => `#/chat/${encodeURIComponent(key)}`;
export const runPath = (key) => `#/run/${encodeURIComponent(key)}`;

/** A link to a run, by its row. */
export const runLink = (row, kind = "") => el("a", { class: `runlink ${kind}`.trim(), href: runPath(row.sessionKey), "data-run": row.sessionKey }, nameOf(row));

/** A link to the page of a session, run or conversation. Its name comes from the store, else from `label`, else from
 * the key. */
export function sessionLink(store, key, label = "") {
  const row = store.rows.get(key);
  if (row) return runLink(row);
  const conversation = store.conversations.get(key);
  const words = conversation ? conversationName(conversation) : label || shortKey(key);
  return el("a", { class: "runlink", href: isRun(key) ? runPath(key) : chatPath(key) }, words);
}
