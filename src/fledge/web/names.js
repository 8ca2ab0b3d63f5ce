// What sessions are called, and where their pages are.

import { el } from "./dom.js";
import { isRun } from "./store.js";
import { nameOf } from "./standing.js";

export const MAIN = "agent:main:main";

/** A session's key as people call it: the main agent's name is left out. */
export function shortKey(key) {
  const [, agent, ...rest] = key.split(":");
  const name = rest.join(":");
  return agent === "main" ? name : name === "main" ? agent : `${agent}: ${name}`;
}

/** A conversation's name: its label, else its first words where its key says nothing, else its key. */
export const conversationName = (conversation) => conversation.label || shortKey(conversation.key);

export const chatPath = (key) => `#/chat/${encodeURIComponent(key)}`;
export const runPath = (key) => `#/run/${encodeURIComponent(key)}`;

/** A link to a run, by its row. */
export const runLink = (row, kind = "") => el("a", { class: `runlink ${kind}`.trim(), href: runPath(row.sessionKey), "data-run": row.sessionKey }, nameOf(row));

/** A link to a session's page, whatever it is. `store` knows its name. */
export function sessionLink(store, key) {
  const row = store.rows.get(key);
  if (row) return runLink(row);
  const conversation = store.conversations.get(key);
  const words = conversation ? conversationName(conversation) : shortKey(key);
  return el("a", { class: "runlink", href: isRun(key) ? runPath(key) : chatPath(key) }, words);
}
