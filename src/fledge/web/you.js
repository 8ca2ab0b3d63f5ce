// For you: the questions and plans of all conversations, which wait for a person, oldest first; below them stuck runs,
// conversations without an answer and undelivered results, and the rules by which commands run without a question.
// Nothing here is lost when the page is closed.

import { waitingCards } from "./asks.js";
import { block, command, keeper, page, steps } from "./desk.js";
import { announce, arrange, button, el, fill, glyph, icon, kbd, refill, write } from "./dom.js";
import { age, full, plural, when } from "./format.js";
import { call, change, reading } from "./gateway.js";
import { chatPath, conversationName, runLink, runPath } from "./names.js";
import { present } from "./time.js";

const TRY = "fledge run \"Plan how to tidy this folder. Show me the plan before you do anything.\"";

export const title = () => "For you";

export function mount(root, params, shared) {
  const { store } = shared;
  const asks = new Map();
  const number = el("span", { class: "badge hot" });
  const waiting = el("h2", { class: "sect" }, "Waiting", number);
  const cards = el("div", { class: "stack", id: "waiting" });
  const empty = nothing();
  const look = el("section", { class: "stack", "aria-labelledby": "look" }, el("h2", { class: "sect", id: "look" }, "Worth a look"));
  const keep = keeper();
  const rules = rulesBlock();
  const hint = el("span", { class: "soft only-wide keyhint", "aria-hidden": "true" }, kbd("n"), "next", kbd("a"), "allow", kbd("d"), "deny", kbd("s"), "not now");
  fill(root, page("For you", "What cannot go on without a person. Nothing here is lost if you close this page.", { kind: "narrow", beside: hint },
    waiting, cards, empty, look, rules.element));

  let allowed = store.waiting;
  const draw = () => {
    arrange(cards, waitingCards(store.questions, store.plans, shared, asks, { keepsMs: Infinity, place: "you" }));
    write(number, String(store.waiting));
    waiting.hidden = cards.childElementCount === 0;
    number.hidden = store.waiting === 0;
    empty.hidden = cards.childElementCount > 0 || !store.isLoaded;
    const worth = worthALook(store);
    look.hidden = worth.length === 0;
    arrange(look, [look.firstChild, ...worth.map(([key, shown, make]) => keep(key, shown, make))]);
    if (store.waiting !== allowed) { allowed = store.waiting; rules.read(); } // an answer may have made a rule
  };
  draw();
  rules.read();
  return store.subscribe(draw);
}

// ---- worth a look: nothing waits for an answer, and yet nothing moves

/** Of each card: its key, the values that it shows, and a function that makes it. */
function worthALook(store) {
  const stuck = [...store.rows.values()].filter((row) => row.stuckAt).map((row) => [row.sessionKey, [row.label, row.now?.text], () => stuckCard(row)]);
  const silent = [...store.conversations.values()].filter((one) => one.unanswered).map((one) => [one.key, [one.label, one.unanswered], () => silentCard(one)]);
  const lost = store.undelivered.length;
  return [...stuck, ...silent, ...lost ? [["undelivered", lost, () => lostCard(lost)]] : []];
}

const lookCard = (tone, name, words, remedy, path) => el("article", { class: `card look edge-${tone}` },
  el("header", { class: "cardline" }, glyph(tone), name, el("span", { class: "soft grow" }, words), el("a", { class: "btn small", href: path }, "Look")),
  el("p", { class: "soft remedy" }, remedy));

const stuckCard = (row) => lookCard("stuck", runLink(row, "strong"), row.now?.text ?? `no step since ${when(row.stuckAt)}`,
  "Nothing was stored for it for a while. It may still be at work: look what it does, then steer or kill it, or let it go on.", runPath(row.sessionKey));

const silentCard = (conversation) => lookCard("stuck", el("a", { class: "runlink strong", href: chatPath(conversation.key) }, conversationName(conversation)),
  `has not answered for ${conversation.unanswered}`, "It has read something and its turn fails again and again. It is tried again by itself; its page says what is wrong.", chatPath(conversation.key));

const lostCard = (number) => lookCard("giveup", el("a", { class: "runlink strong", href: "#/undelivered" }, `${plural(number, "result")} undelivered`),
  "", "Each is kept: deliver it again, give it to another conversation, or let it go.", "#/undelivered");

// ---- rules: commands that are allowed for good

/** The rules that were made with *always*, each with a button that revokes it. */
function rulesBlock() {
  const list = el("ul", { class: "rules" });
  const element = block("Allowed for good", el("span", { class: "soft" }, "commands that run without a question"), list);
  const read = reading(async () => {
    const rules = await call("permissions.list");
    refill(list, rules.length ? rules.map((rule) => ruleItem(rule, read)) : el("li", { class: "soft" }, "Nothing yet. “Always …” on a question makes a rule, and it is listed here."));
  });
  return { element, read };
}

function ruleItem(rule, read) {
  const words = rule.words.join(" ") + (rule.paths === false ? "" : " …");
  const revoke = async () => {
    await change("permissions.revoke", { id: rule.id });
    announce(`${words} asks again`);
    await read();
  };
  return el("li", { "data-key": rule.id },
    icon("check", 14),
    el("div", { class: "grow min" },
      el("code", null, words),
      rule.counts === false && el("p", null, "This rule does not count any more: it was made when any files could follow any command. Revoke it."),
      el("p", { class: "soft" }, `${rule.agent}${rule.children ? " and its subagents" : ""} in `, el("span", { class: "mono" }, rule.folder))),
    el("time", { class: "faint nowrap only-wide", datetime: new Date(rule.madeAt).toISOString(), title: `${full(rule.madeAt)}, by ${rule.madeBy}` }, `${age(present() - rule.madeAt)} ago`),
    button("Revoke", { kind: "small", label: `Revoke ${words}`, act: revoke }));
}

// ---- nothing waits

const nothing = () => el("div", { class: "teach", id: "you-empty" },
  glyph("ok", 40), el("h2", null, "Nothing waits for you"),
  el("p", { class: "soft" }, "Agents stop here when they want to do something that needs a yes."),
  steps([
    ["an agent asks", "to run a command, write a file, or carry out a plan"],
    ["you see all of it", "what it would do, where, and why it asks"],
    ["it goes on", "with your yes, your no, or your words"],
  ]),
  el("p", { class: "soft" }, "See it at work:"), command(TRY));
