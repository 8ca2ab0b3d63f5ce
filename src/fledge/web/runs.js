// The tree of runs, as it stands.

import { call } from "./gateway.js";
import { byId, chip, coalesced, duration, el, pause, released, runLink, standing } from "./dom.js";

const MOST = 300; // runs shown; the command line shows all
const OVER = new Set(["completed", "archived", "gone"]); // nothing more is to be said of these

export class Runs {
  #was = "";

  constructor(failed) {
    this.refresh = coalesced(() => this.#read(), failed);
  }

  async #read() {
    const { runs, leftOut } = await call("runs.tree", { limit: MOST });
    const active = count(runs, (run) => run.endedAt === null);
    byId("runs-count").textContent = active;
    byId("runs-count").hidden = active === 0;
    const is = JSON.stringify([runs, leftOut]);
    if (is === this.#was) return;
    await released(byId("runs-tree"));
    this.#was = is;
    const focused = document.activeElement?.dataset?.run;
    const tree = list(runs);
    byId("runs-tree").replaceChildren(...(runs.length ? [tree] : []));
    if (leftOut) byId("runs-tree").append(more(leftOut));
    byId("runs-empty").textContent = "No runs yet. The model starts them, or you do: /subagents spawn";
    byId("runs-empty").hidden = runs.length > 0;
    if (focused) [...byId("runs-tree").querySelectorAll("a")].find((one) => one.dataset.run === focused)?.focus();
    mark();
  }
}

/** Show which run is looked at. */
export function mark() {
  for (const one of byId("runs-tree").querySelectorAll("a")) {
    if (one.hash === location.hash) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

const byAge = (one, other) => Number(one.endedAt !== null) - Number(other.endedAt !== null) || other.createdAt - one.createdAt;

const count = (runs, which) => runs.reduce((sum, run) => sum + Number(which(run)) + count(run.children, which), 0);

const more = (number) => el("p", { class: "muted" }, `and ${number} more: fledge tree shows all`);

/** The lines of these runs and of what is below them. */
const list = (runs) => el("ul", { class: "tree" }, ...[...runs].sort(byAge).map(row));

function row(run) {
  const took = run.startedAt && run.endedAt ? ` ${duration((run.endedAt - run.startedAt) / 1000)}` : "";
  const name = run.label || run.task;
  const link = runLink(run.sessionKey, name.length > 80 ? `${name.slice(0, 80)} …` : name, { "data-run": run.sessionKey });
  const phase = run.endedAt !== null && !OVER.has(run.phase) ? ` ${run.phase.replaceAll("_", " ")}` : "";
  link.append(" ", chip(standing(run)), el("span", { class: "muted" }, phase + pause(run) + took));
  return el("li", {}, link, run.children.length ? list(run.children) : null, run.leftOut ? more(run.leftOut) : null);
}
