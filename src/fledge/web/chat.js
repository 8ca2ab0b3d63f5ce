// A conversation: its messages, replies and tool calls, the subagents it started, the questions and plans that wait for
// a person, the live text of the current turn, and the composer. The view never moves while a person reads: it follows
// the end only if the reader is there.

import { announce, arrange, button, el, fail, fill, glyph, icon, kbd, oncePerFrame, refill, write } from "./dom.js";
import { count, plural, usd } from "./format.js";
import { killBelow } from "./actions.js";
import { waitingCards } from "./asks.js";
import { composer } from "./composer.js";
import { steps } from "./desk.js";
import { Stream } from "./entries.js";
import { change } from "./gateway.js";
import * as layers from "./layers.js";
import { markdown } from "./markdown.js";
import { chooseModel } from "./models.js";
import { conversationName } from "./names.js";
import { panel } from "./panel.js";
import { present } from "./time.js";
import { transcriptOf } from "./transcript.js";

const NEAR_PX = 80;
const PLAIN_CHARS = 20_000; // a longer live text is shown without format until it is an entry
const TWICE_MS = 600;
const EXAMPLES = [
  ["search", "Look through something", "Find every place that still reads the old setting; three scouts at once."],
  ["plan", "Plan first", "Plan the move to the new schema. Show me the plan before you do anything."],
  ["branch", "Hand over a big job", "Port the tests to pytest. Split the work, keep them green, ask before you delete."],
];

export const title = ([key], { store }) => conversationName(store.conversations.get(key) ?? { key });

export function mount(root, [key], shared) {
  const chat = new Chat(root, key, shared);
  return () => chat.end();
}

class Chat {
  #atEnd = true;
  #size = ""; // of the place of the words, when the observer last looked
  #seen = 0; // the number of the last entry that the reader saw at the end
  #escapeAt = -TWICE_MS;
  #cards = new Map();

  constructor(root, key, shared) {
    this.key = key;
    this.shared = shared;
    this.store = shared.store;
    this.transcript = transcriptOf(shared, key);
    this.transcript.folder = shared.kept.get(`folder ${key}`) ?? "";
    this.stream = new Stream(this.transcript, this.store, ["You", "fledge"]);
    this.composer = composer(key, {
      say: (text, files) => { this.bottom(); this.transcript.say(text, files); },
      command: (line) => { this.bottom(); this.transcript.command(line); },
      stop: () => this.stop(),
      model: () => this.chooseModel(),
    });
    this.transcript.refused = (message) => { if (this.composer.isEmpty()) this.#takeBack(message); };
    this.panel = panel(key, shared);
    this.#build(root);
    const draw = oncePerFrame(() => this.#draw());
    // A window that is turned, a keyboard that opens, and long words in the box change its size: who was at the end stays there.
    const resized = new ResizeObserver(() => { this.#size = this.#measured(); if (this.#atEnd) this.#follow(null); });
    resized.observe(this.scroll, { box: "border-box" });
    this.ends = [
      this.store.watch(key), this.store.subscribe(draw), this.transcript.subscribe(draw),
      () => resized.disconnect(), () => { this.transcript.refused = () => {}; },
      shared.keys({ t: () => togglePanel(), "/": () => { this.composer.focus(); this.composer.put("/"); } }),
    ];
    shared.actions = this.#actions;
    this.transcript.refresh();
    this.#draw();
    this.bottom();
  }

  end() { for (const end of this.ends) end(); }

  #build(root) {
    this.name = el("h1", { class: "clip" });
    this.folder = el("p", { class: "soft clip" });
    this.older = button("Show earlier", { kind: "small", id: "earlier", hidden: true, act: () => this.#readOlder() });
    this.list = el("ol", { class: "log" });
    this.log = el("div", { id: "chat-log", role: "log", "aria-label": "What was said", "aria-live": "off" }, this.list);
    this.live = el("div", { class: "log live", id: "chat-live", "aria-live": "off", hidden: true });
    this.unsent = el("ol", { class: "log", id: "chat-pending", "aria-label": "Not yet read" });
    this.waiting = el("section", { class: "log", id: "waiting", "aria-label": "Waiting for you", "aria-live": "polite" });
    this.empty = hello((text) => { this.composer.put(text); this.composer.focus(); });
    this.scroll = el("div", { class: "scroll", id: "chat-scroll", tabindex: "0", role: "region", "aria-label": "Conversation", on: { scroll: () => this.#scrolled() } },
      this.empty, el("div", { class: "stream" }, this.older, this.log, this.live, this.waiting, this.unsent));
    this.newest = button("Newest", { kind: "newest", id: "newest", ico: "down", hidden: true, act: () => this.bottom() });
    this.activity = el("div", { class: "activity", role: "status" });
    this.late = el("p", { class: "because c-stuck", id: "unanswered", role: "status", hidden: true });
    this.failing = el("p", { class: "because c-error", id: "failing", role: "status", hidden: true });
    const more = button("", { kind: "ghost", ico: "more", label: "More", "aria-haspopup": "menu", act: () => layers.menu(more, "More", this.#actions) });
    const element = el("div", { class: "chatview" },
      el("section", { class: "chat", "aria-label": "Chat" },
        el("header", { class: "head" }, el("div", { class: "grow min" }, this.name, this.folder),
          el("a", { class: "btn small only-narrow", href: "#/runs" }, "Runs"),
          button("", { kind: "ghost only-wide", ico: "panel", label: "Show or hide the tree", key: null, act: () => togglePanel() }), more),
        el("div", { class: "scrollbox" }, this.scroll, this.newest),
        el("div", { class: "bottom" }, this.late, this.failing, this.activity, this.composer.element)),
      this.panel.element);
    element.addEventListener("keydown", (event) => this.#escape(event));
    fill(root, element);
  }

  // ---- drawing

  #draw() {
    const anchor = this.#atEnd ? null : this.#anchor();
    const { store, transcript } = this;
    const conversation = store.conversations.get(this.key);
    write(this.name, title([this.key], this.shared));
    const folder = conversation?.workspace || transcript.folder;
    refill(this.folder, folder && [icon("folder", 12), ` ${folder}`]);
    this.composer.model([conversation?.agentId ?? this.key.split(":")[1], conversation?.model].filter(Boolean).join(" · "));
    if (this.#atEnd) transcript.forgetOldest();
    this.stream.draw(this.list);
    if (transcript.isLoaded) this.log.setAttribute("aria-live", "polite"); // screen readers read out the entries that come from now on
    this.older.hidden = !transcript.hasOlder;
    this.#drawLive();
    this.#drawWaiting();
    this.#drawUnsent();
    this.empty.hidden = !(transcript.isLoaded && !transcript.shown.length && !transcript.unsent.length && !transcript.live);
    this.#drawActivity(conversation);
    this.panel.draw();
    this.#follow(anchor);
  }

  #drawLive() {
    const { live } = this.transcript;
    const asks = this.store.questions.some((question) => question.sessionKey === this.key);
    this.live.hidden = !live && !asks;
    if (this.live.hidden) { fill(this.live); return; }
    if (live?.error) {
      refill(this.live, el("p", { class: "because c-error" }, icon("warn", 14), `That failed: ${live.error}`),
        el("p", { class: "soft" }, live.remedy || "It is tried again by itself, until it works or is stopped."));
      return;
    }
    const text = live?.text ?? "";
    const words = text.length > PLAIN_CHARS ? el("pre", { class: "md" }, text) : markdown(text, true);
    const status = asks ? "waiting for you …" : live?.status ?? "";
    refill(this.live, text && el("div", { class: "streaming", "aria-busy": "true" }, words, el("span", { class: "caret", "aria-hidden": "true" })),
      status && el("p", { class: "status soft" }, glyph(asks ? "you" : "running", 13), status));
  }

  #drawWaiting() {
    const mine = (one) => this.store.rootOf(one.sessionKey) === this.key;
    const cards = waitingCards(this.store.questions.filter(mine), this.store.plans.filter(mine), this.shared, this.#cards);
    const hadFocus = this.waiting.contains(document.activeElement) && document.activeElement !== this.waiting;
    arrange(this.waiting, cards);
    // Not to the composer: the key that was meant for one more card would be typed there.
    if (hadFocus && !this.waiting.contains(document.activeElement)) (cards[0] ?? this.scroll).focus({ preventScroll: true });
  }

  #drawUnsent() {
    const words = { sending: "sending …", sent: "sent, not yet read", waiting: "not sent yet: it is sent again until the gateway has it" };
    const again = (message) => [el("p", { class: "because c-error" }, icon("warn", 14), `The gateway did not take this: ${message.reason}.`), el("p", { class: "cardfoot" },
      button("Send again", { kind: "small", ico: "retry", act: () => this.transcript.sayAgain(message) }),
      button("Take it back", { kind: "small ghost", act: () => this.#takeBack(message) }))];
    refill(this.unsent, this.transcript.unsent.map((message) => el("li", { class: "msg user", "data-role": "unsent", "data-state": message.state },
      el("div", { class: "bubble" }, markdown(message.text), message.files.map((file) => el("span", { class: "attach" }, icon("file", 13), file.name))),
      message.state === "refused" ? again(message) : el("span", { class: "stamp" }, words[message.state]))));
  }

  /** Put a refused message back where the person writes. */
  #takeBack(message) {
    this.transcript.takeBack(message);
    this.composer.add(message.text, message.files);
  }

  /** @param {import("./shapes.js").FailingTurn} failing */
  #failingWords(failing) {
    const nextS = failing.nextAt ? Math.ceil((failing.nextAt - present()) / 1000) : 0;
    return `failed ${plural(failing.tries, "time")}: ${failing.reason}; tried again ${nextS > 0 ? `in ${nextS} s` : "now"}`;
  }

  #drawActivity(conversation) {
    const below = this.store.below(this.key);
    const active = below.filter((row) => row.isActive && row.now?.kind !== "you").length;
    const isBusy = (conversation?.state ?? "idle") !== "idle";
    const waits = this.waiting.querySelectorAll(".ask:not(.answered)").length;
    const lost = below.filter((row) => row.phase === "completed_giveup").length;
    const failing = conversation?.failing, late = conversation?.unanswered ?? "";
    this.late.hidden = late === "";
    write(this.late, late && `${late}: it is tried again by itself`);
    this.failing.hidden = !failing;
    write(this.failing, failing ? this.#failingWords(failing) : "");
    const tokens = below.reduce((sum, row) => sum + row.tokensIn + row.tokensOut, 0);
    const waitsFor = isBusy ? "" : conversation?.waitsFor ?? "";
    const is = JSON.stringify([active, isBusy, waits, waitsFor, lost, tokens, conversation?.costBelowUsd]);
    if (is === this.activityIs) return;
    this.activityIs = is;
    refill(this.activity,
      active > 0 || isBusy ? [glyph("running", 13), el("span", null, active > 0 ? [el("b", null, String(active)), " at work"] : "answering")] : el("span", { class: "faint" }, "at rest"),
      waitsFor && el("span", { class: "faint" }, waitsFor),
      waits > 0 && el("button", { type: "button", class: "seg s-you", "data-key": "waits", on: { click: () => this.waiting.querySelector(".ask")?.focus() } }, glyph("you", 13), el("span", null, plural(waits, "waits", "wait"), " for you"), kbd("N")),
      lost > 0 && el("a", { class: "seg s-lost", href: "#/undelivered" }, glyph("giveup", 13), `${lost} undelivered`),
      el("span", { class: "grow" }),
      tokens > 0 && el("span", { class: "num faint nowrap" }, `${count(tokens)} tok${conversation?.costBelowUsd ? ` · ${usd(conversation.costBelowUsd)}` : ""}`));
  }

  // ---- scrolling

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    // Where the size has just changed, it was not the reader who moved: the observer goes on from where the reader was.
    if (this.#size === this.#measured()) this.#atEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    if (this.#atEnd) this.#markSeen();
    if (scrollTop < NEAR_PX && this.transcript.hasOlder) this.#readOlder();
  }

  #measured() { return `${this.scroll.offsetWidth} ${this.scroll.offsetHeight}`; }

  #readOlder() { return this.transcript.older(); }

  /** The first entry in sight, and where it stands: it must stay there while the rest changes. */
  #anchor() {
    const top = this.scroll.getBoundingClientRect().top;
    for (const node of this.scroll.querySelectorAll(".msg, .card")) {
      const box = node.getBoundingClientRect();
      if (box.bottom > top) return { node, top: box.top };
    }
    return null;
  }

  #follow(anchor) {
    if (!this.empty.hidden) { this.scroll.scrollTop = 0; return; }
    if (this.#atEnd) { this.bottom(); return; }
    if (anchor?.node.isConnected) this.scroll.scrollTop += anchor.node.getBoundingClientRect().top - anchor.top;
    const fresh = this.log.querySelectorAll("[data-seq]");
    const number = new Set([...fresh].map((node) => Number(node.dataset.seq)).filter((seq) => seq > this.#seen)).size;
    this.newest.hidden = number === 0 && this.transcript.live === null;
    write(this.newest.querySelector("span"), number ? `Newest (${number})` : "Newest");
  }

  #markSeen() {
    this.#seen = this.transcript.entries.at(-1)?.seq ?? 0;
    this.newest.hidden = true;
  }

  bottom() {
    this.#atEnd = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.#markSeen();
  }

  // ---- actions of the person

  /** Escape leaves the box, so that single letters act; twice in a row it stops the turn. */
  #escape(event) {
    if (event.key !== "Escape" || event.defaultPrevented || layers.isOpen()) return;
    if (event.target.id === "say") this.scroll.focus({ preventScroll: true });
    const isSecond = event.timeStamp - this.#escapeAt < TWICE_MS;
    this.#escapeAt = isSecond ? -TWICE_MS : event.timeStamp;
    if (isSecond) this.stop().catch((error) => fail(error, () => this.stop()));
  }

  /** Stop the turn, and nothing below it. */
  async stop() {
    await change("sessions.stop", { session: this.key, below: false });
    announce("stopped");
    await this.store.readConversations(); // a turn that waited for its next try ends without an event
  }

  get #actions() {
    return [
      ["Rename …", "edit", () => this.rename()],
      ["Model …", "brain", () => this.chooseModel()],
      ["Stop this turn", "stop", () => this.stop()],
      ["Kill everything below …", "kill", () => killBelow(this.key), "danger"],
    ];
  }

  rename() {
    const value = this.store.conversations.get(this.key)?.label ?? "";
    const box = el("input", { class: "field", type: "text", value, maxlength: 128, "aria-label": "Name of this conversation", "data-first": true });
    const save = button("Save", { kind: "primary", act: async () => { await this.#patch({ label: box.value.trim() }); layers.close(); } });
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); save.click(); } });
    layers.dialog("Rename this conversation", "edit", [el("p", { class: "soft" }, "Its name in the sidebar. Empty: as before."), box], save);
  }

  chooseModel() { chooseModel(this.store.conversations.get(this.key)?.model ?? "", (model) => this.#patch({ model })); }

  async #patch(given) {
    await change("sessions.patch", { session: this.key, ...given });
    await this.store.readConversations();
  }
}

function togglePanel() { document.documentElement.toggleAttribute("data-nopanel"); }

/** The content of an empty conversation: examples of requests, and the steps that follow a request. */
function hello(put) {
  return el("div", { class: "hello", id: "chat-empty", hidden: true },
    el("img", { src: "/page/icon.svg", alt: "", width: 48, height: 48 }),
    el("h2", null, "What should be done?"),
    el("p", { class: "soft" }, "Nothing has been said yet. Say it in your words: long jobs go on in the background, and you can go on talking."),
    el("ul", { class: "tips" }, EXAMPLES.map(([ico, name, words]) => el("li", null, el("button", { type: "button", class: "tipcard", on: { click: () => put(words) } }, icon(ico, 18), el("b", null, name), el("span", { class: "soft" }, `“${words}”`))))),
    steps([["you ask", "in this conversation"], ["it starts agents", "you see them live beside it"], ["results come back here", "each exactly once"]]));
}
