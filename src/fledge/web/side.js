// The sidebar: views with their counts, conversations by project with a search, the connection, theme, sign out. A
// conversation's sign is the most urgent thing about it: waits for you, stuck, busy, unread, else the time.

import { keeper } from "./desk.js";
import { announce, arrange, button, el, fail, fill, glyph, icon, set, write } from "./dom.js";
import { plural, when } from "./format.js";
import { chatPath, conversationName, MAIN } from "./names.js";
import { nextTheme, theme } from "./theme.js";

const SEARCH_MS = 250;
const THEME_ICONS = { auto: "auto", light: "sun", dark: "moon" };

/** The views beside the chat: name in the address, words, icon, count of the store, kind of badge, key. */
export const VIEWS = [
  ["runs", "Runs", "runs", (store) => store.counts.active, "", "g r"],
  ["you", "For you", "you", (store) => store.waiting, "hot", "g y"],
  ["undelivered", "Undelivered", "mail", (store) => store.undelivered.length, "warm", "g u"],
  ["agents", "Agents", "agents", () => 0, "", "g a"],
  ["health", "Health", "pulse", () => 0, "", "g h"],
  ["settings", "Settings", "gear", () => 0, "", "g s"],
];

/** True if an item of the navigation stands for the view that is shown. */
export const isHere = (id, view) => id === view || (id === "runs" && view === "run");

/** Build the sidebar. `acts`: search, begin (a conversation), closeDrawer, signOut. Answers the element and `draw(view,
 * key)`, which is called whenever something changed. */
export function sidebar(store, acts) {
  const links = VIEWS.map(([id, words, ico, countOf, kind]) => {
    const badge = el("span", { class: `badge ${kind}`.trim(), id: `${id}-count`, hidden: true });
    const link = el("a", { href: `#/${id}`, class: "navlink" }, icon(ico), el("span", { class: "grow" }, words), badge);
    return { id, link, badge, countOf };
  });
  const search = el("input", { type: "search", class: "field", id: "find-conversation", placeholder: "Search conversations", "aria-label": "Search conversations", autocomplete: "off" });
  const list = el("div", { class: "convs", id: "conversations" });
  const dot = el("span", { class: "dot" });
  const words = el("span", { class: "grow soft clip", id: "connection", role: "status" });
  const look = button("", { kind: "ghost", ico: THEME_ICONS[theme()], label: themeLabel(), act: () => announce(`theme: ${nextTheme()}`) });
  addEventListener("theme", () => {
    fill(look, icon(THEME_ICONS[theme()]));
    set(look, "aria-label", themeLabel());
    set(look, "title", themeLabel());
  });
  const groups = new Map(); // by project: its section, kept between draws
  let here = { view: "", key: "" };
  let others = [];
  let asking = 0;

  const draw = (view = here.view, key = here.key) => {
    here = { view, key };
    for (const { id, link, badge, countOf } of links) {
      const number = countOf(store);
      badge.hidden = number === 0;
      write(badge, String(number));
      if (isHere(id, view)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    drawConversations(store, groups, list, search.value.trim().toLowerCase(), others, view === "chat" ? key : "");
    drawConnection(store.connection, dot, words);
  };
  search.addEventListener("input", () => {
    draw();
    clearTimeout(asking);
    const wanted = search.value.trim();
    if (!wanted) { others = []; return; }
    asking = setTimeout(async () => {
      try { others = await store.findConversations(wanted); } catch (error) { fail(error); }
      draw();
    }, SEARCH_MS);
  });

  const element = el("aside", { class: "side", id: "side", "aria-label": "Navigation" },
    el("div", { class: "brand" },
      el("img", { src: "/page/icon.svg", alt: "", width: 24, height: 24 }), el("strong", null, "fledge"), el("span", { class: "grow" }),
      button("", { kind: "ghost", ico: "search", label: "Search everything", act: acts.search }),
      button("", { kind: "ghost close-side", ico: "x", label: "Close navigation", act: acts.closeDrawer })),
    button("New conversation", { kind: "new", ico: "plus", key: "c", act: acts.begin }),
    el("nav", { "aria-label": "Views" }, el("ul", null, links.map(({ link }) => el("li", null, link)))),
    el("div", { class: "findbox" }, icon("search", 14), search),
    list,
    el("div", { class: "foot" }, dot, words, look, button("", { kind: "ghost", ico: "out", label: "Sign out", act: acts.signOut })));
  return { element, draw };
}

const themeLabel = () => `Theme: ${theme()}. Press to change`;

function drawConnection({ state, retryAt }, dot, words) {
  dot.className = `dot ${{ connected: "ok", waiting: "bad" }[state] ?? ""}`;
  words.dataset.state = state;
  const wait = Math.max(1, Math.ceil((retryAt - performance.now()) / 1000));
  write(words, { connected: "connected", connecting: "connecting …", waiting: `not connected · ${wait} s` }[state]);
  set(words, "title", location.host);
}

const says = (conversation, wanted) =>
  [conversation.label, conversation.firstWords, conversation.key].some((text) => text?.toLowerCase().includes(wanted));

/** `others`: conversations that a search found and the store does not hold. */
function drawConversations(store, groups, list, wanted, others, chosen) {
  const known = new Map([...store.conversations, ...others.map((conversation) => [conversation.key, conversation])]);
  for (const key of [MAIN, chosen]) if (key && !known.has(key)) known.set(key, { key, state: "idle" }); // it has not begun
  const found = [...known.values()].filter((conversation) => says(conversation, wanted));
  const byProject = Map.groupBy(found, (conversation) => conversation.workspace ?? "");
  const sections = [...byProject].map(([project, members]) => {
    if (!groups.has(project)) groups.set(project, section(project));
    const group = groups.get(project);
    arrange(group.list, members.map((one) => group.item(one, one.key === chosen)));
    return group.element;
  });
  if (!found.length) sections.push(el("p", { class: "soft pad" }, wanted ? "No conversation is called that." : ""));
  arrange(list, sections);
}

/** A project's conversations. */
function section(project) {
  const keep = keeper();
  const list = el("ul");
  const name = project.split("/").filter(Boolean).at(-1) ?? "Conversations";
  const element = el("section", null, el("h2", { class: "group", title: project || null }, icon(project ? "folder" : "chat", 13), name), list);
  const item = (conversation, isChosen) => {
    const shown = shownOf(conversation);
    return keep(conversation.key, [shown, isChosen], () => conversationItem(conversation, shown, isChosen));
  };
  return { element, list, item };
}

/** The content of an item: its name, and the most urgent thing about it. */
function shownOf(conversation) {
  const name = conversationName(conversation);
  const { waits, stuck, unsettled, state, unread, updatedAt } = conversation;
  if (waits) return { name, badge: waits, words: `${plural(waits, "thing waits", "things wait")} for you` };
  if (stuck) return { name, tone: "stuck", words: `${plural(stuck, "run is", "runs are")} stuck` };
  if (state !== "idle" || unsettled) return { name, tone: "running", words: unsettled ? `${unsettled} at work` : "at work" };
  if (unread) return { name, unread: true, words: "unread" };
  return { name, at: updatedAt, words: "" };
}

function conversationItem(conversation, shown, isChosen) {
  const sign = shown.badge ? el("span", { class: "badge hot", title: shown.words }, String(shown.badge))
    : shown.tone ? glyph(shown.tone, 13)
      : shown.unread ? el("span", { class: "dot new", title: shown.words })
        : shown.at ? el("span", { class: "when" }, when(shown.at)) : null;
  return el("li", null, el("a", { class: "conv", href: chatPath(conversation.key), title: conversation.firstWords || null, "aria-current": isChosen ? "page" : null },
    el("span", { class: "grow clip" }, shown.name), sign, shown.words && el("span", { class: "sr" }, shown.words)));
}
