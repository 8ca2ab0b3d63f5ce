// Agents: the model, the tools and the limits of each, and the agents that it may start. The settings decide this; the
// view only shows it.

import { bars, block, command, facts, keeper, page, steps } from "./desk.js";
import { arrange, el, fill, icon } from "./dom.js";
import { count, plural, usd } from "./format.js";
import { call, reading } from "./gateway.js";

/** Whether an agent may use a tool: icon and words. */
const STANDS = { may: ["check", "may use it"], asks: ["hand", "asks you first"], never: ["x", "may never use it"] };
const COLOURS = 5;
const EVERY_S = 30; // between two readings while the view is visible: new costs have no event
const BEFORE = "Who may do what. The settings say so (agents.list); this page only shows it.";

export const title = () => "Agents";

export function mount(root, params, { store }) {
  const grid = el("div", { class: "agentgrid", id: "agents" });
  const teach = block("An agent of your own", null, teaching());
  fill(root, page("Agents", BEFORE, {}, grid, teach));
  const keep = keeper();
  let agents = [];
  const draw = () => {
    const atWork = Map.groupBy([...store.rows.values()].filter((row) => row.isActive), (row) => row.agentId);
    arrange(grid, agents.map((agent) => {
      const busy = atWork.get(agent.id)?.length ?? 0;
      return keep(agent.id, [agent, busy], () => card(agent, busy));
    }));
    teach.hidden = agents.length !== 1; // main alone
  };
  const read = reading(async () => { agents = await call("agents.list"); draw(); });
  read();
  const unsubscribe = store.subscribe(draw);
  const unlisten = store.listen((event) => { if (event.type === "connected") read(); }); // the gateway may have other settings now
  let seconds = 0;
  const untick = store.everySecond(() => { seconds += 1; if (seconds % EVERY_S === 0) read(); });
  return () => { unsubscribe(); unlisten(); untick(); };
}

function card(agent, busy) {
  const { id, model, fallbacks, starts, maxDepth, maxChildren, budget, sandbox, network } = agent;
  const colour = [...id].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % COLOURS;
  return el("article", { class: "card agent", "aria-label": id },
    el("header", { class: "cardline" },
      el("span", { class: `letter h${colour}`, "aria-hidden": "true" }, [...id][0].toUpperCase()),
      el("div", { class: "grow min" }, el("h2", { class: "clip" }, id),
        el("p", { class: "soft clip", title: [model, ...fallbacks].join(", then ") }, model || "the model that the command names", fallbacks.length > 0 && el("span", { class: "faint" }, ` then ${fallbacks.join(", ")}`))),
      busy ? el("span", { class: "chip c-running" }, `${busy} at work`) : el("span", { class: "chip" }, "idle")),
    agent.description && el("p", { class: "task" }, agent.description),
    el("ul", { class: "tools", "aria-label": "Tools" }, Object.keys(STANDS).flatMap((how) => agent[how].map((tool) => toolItem(tool, how)))),
    facts([
      ["may start", starts.length && maxDepth ? starts.join(", ") : "no agents"],
      ["depth · children", maxDepth ? `${maxDepth} · ${maxChildren} at once` : "–"],
      ["budget of a child", budgetWords(budget)],
      ["sandbox", `${sandbox}${network ? `, network ${network}` : ""}`],
    ]), weekLine(agent.week));
}

/** The runs that an agent began in the last seven days, and what its conversations and runs cost. */
function weekLine(week) {
  const runs = week.map((day) => day.runs);
  const priced = week.filter((day) => day.costUsd !== null);
  const all = runs.reduce((sum, times) => sum + times, 0);
  return el("p", { class: "week" }, bars(runs, `Runs begun on each of the last seven days, today last: ${runs.join(", ")}`, { width: 112, height: 28 }),
    el("span", { class: "soft grow" }, `${plural(all, "run")} in seven days`), el("b", { class: "num", title: "what its conversations and runs cost in seven days" }, usd(priced.length ? priced.reduce((sum, day) => sum + day.costUsd, 0) : null)));
}

const toolItem = (tool, how) => el("li", { class: `tool-${how}`, title: STANDS[how][1] }, icon(STANDS[how][0], 12), tool, el("span", { class: "sr" }, STANDS[how][1]));

function budgetWords(budget) {
  const { tokens, usd: dollars, turns, seconds } = budget ?? {};
  const parts = [dollars && usd(dollars), tokens && `${count(tokens)} tokens`, turns && `${turns} turns`, seconds && `${seconds} s`].filter(Boolean);
  return parts.join(" · ") || "no limit";
}

const teaching = () => [
  el("p", { class: "soft" }, "Until others are named, every job is done by main. Give a kind of work its own agent when it needs another model, fewer tools or a smaller budget."),
  steps([["name it", "in the settings file: agents.list, with an id and a description"], ["bound it", "its model, its tools, its budget, its sandbox"], ["let main start it", "subagents.allowAgents says whom an agent may start"]]),
  command("fledge init"),
];
