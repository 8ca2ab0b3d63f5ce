// Settings: the switches of this browser, the browsers that are signed in, and the configuration of the gateway, read
// only: value, default, source. Secrets are never part of it; the gateway leaves them out.

import { block, page } from "./desk.js";
import { announce, button, el, fill, icon, refill, write } from "./dom.js";
import { plural, when } from "./format.js";
import { call, change, ownSignIn, reading } from "./gateway.js";
import { chooseTheme, isOn, theme, THEMES, turn } from "./theme.js";

const TOGGLES = [
  ["letters", "Single-letter keys", "a, d, s, j, k … never while you type"],
  ["notices", "Tell me when something waits", "a notice of the browser while this tab is hidden; never what is asked"],
  ["fold", "Fold tool calls", "one line each until opened"],
  ["calm", "Calm", "no moving signs"],
];
const THEME_WORDS = { auto: "as the system", light: "light", dark: "dark" };

export const title = () => "Settings";

export function mount(root) {
  const told = el("p", { class: "notice", role: "alert", hidden: true });
  const search = el("input", { type: "search", class: "field", placeholder: "Search settings", "aria-label": "Search settings", autocomplete: "off" });
  const onlySet = el("input", { type: "checkbox" });
  const browsers = el("ul", { class: "rules", id: "signins" });
  const tables = el("div", { class: "stack", id: "config" });
  fill(root, page("Settings", "Your switches for this page, and what the gateway runs with.", { kind: "narrow" },
    block("This page", el("span", { class: "soft" }, "kept in this browser"), el("div", { class: "toggles" }, TOGGLES.map((one) => toggle(one, told)), themes()), told),
    block("Signed in", el("span", { class: "soft" }, "browsers that need no token"), browsers),
    el("header", { class: "sect wrap" }, el("div", { class: "grow" }, el("h2", null, "Configuration"), el("p", { class: "soft remedy" }, "Read only: change the file, then restart the gateway.")),
      el("label", { class: "tick" }, onlySet, "only what is set"), el("div", { class: "findbox" }, icon("search", 14), search)),
    tables));
  let settings = [];
  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = settings.filter((one) => (!onlySet.checked || isSet(one)) && `${one.key} ${one.meaning} ${one.value} ${one.source}`.toLowerCase().includes(wanted));
    const groups = Map.groupBy(found, ({ key }) => groupOf(key));
    fill(tables, !wanted && sources(settings), [...groups].map(([name, rows]) => table(name, rows)),
      settings.length > 0 && !found.length && el("p", { class: "soft" }, onlySet.checked && !wanted ? "Nothing is set: every value is the default." : "No setting is called that."));
  };
  search.addEventListener("input", draw);
  onlySet.addEventListener("change", draw);
  reading(async () => { settings = await call("config.shown"); draw(); })();
  const readBrowsers = reading(async () => refill(browsers, (await call("signins.list")).map((one) => browserItem(one, readBrowsers))));
  readBrowsers();
  return () => {};
}

// ---- this page

function toggle([name, words, more], told) {
  const box = el("input", { type: "checkbox", role: "switch", id: `switch-${name}` });
  box.checked = isOn(name);
  box.addEventListener("change", async () => {
    told.hidden = true;
    if (name === "notices" && box.checked && !(await mayNotify())) {
      box.checked = false;
      write(told, "The browser does not allow notices from this page. Allow them in its settings for this site, then try again.");
      told.hidden = false;
      return;
    }
    turn(name, box.checked);
    announce(`${words}: ${box.checked ? "on" : "off"}`);
  });
  return el("label", { class: "toggle" }, box, el("span", { class: "track", "aria-hidden": "true" }), el("span", null, el("b", null, words), el("span", { class: "soft" }, more)));
}

async function mayNotify() {
  return "Notification" in globalThis && (await Notification.requestPermission()) === "granted";
}

const themes = () => el("fieldset", { class: "themes" }, el("legend", null, el("b", null, "Theme")), THEMES.map((name) => {
  const choice = el("input", { type: "radio", name: "theme", value: name });
  choice.checked = theme() === name;
  choice.addEventListener("change", () => chooseTheme(name));
  return el("label", { class: "tick" }, choice, THEME_WORDS[name]);
}));

// ---- the browsers that are signed in

const PROGRAM = /(Firefox|Edg|OPR|Chrome|Safari)\/(\d+)/;
const SYSTEM = /Windows|Mac OS X|Android|iPhone|iPad|CrOS|Linux/;

/** A browser in short, from what it says of itself; that may be anything. */
function browserName(words) {
  const [, program, version] = PROGRAM.exec(words) ?? [];
  const [system] = SYSTEM.exec(words) ?? ["another system"];
  return program ? `${program} ${version} on ${system}` : words || "a browser without a name";
}

function browserItem(one, read) {
  const isThis = one.id === ownSignIn();
  const name = browserName(one.browser);
  const end = async () => {
    await change("signins.end", { id: one.id });
    announce(`${name} is signed out`);
    await read();
  };
  return el("li", { "data-key": one.id },
    icon("globe", 14),
    el("div", { class: "grow min" }, el("span", { title: one.browser }, name), isThis && el("b", null, " · this browser"),
      el("p", { class: "soft" }, `since ${when(one.madeAt)} · last used ${when(one.usedAt)} · ends ${when(one.endsAt)} unless it is used`)),
    isThis ? null : button("Sign out", { kind: "small", label: `Sign out ${name}, since ${when(one.madeAt)}`, act: end }));
}

// ---- the configuration

const isSet = ({ source }) => source !== "default";
/** The name of the table for a setting: the settings of subagents and of each agent have tables of their own. */
function groupOf(key) {
  const parts = key.split(".");
  if (parts[0] !== "agents") return parts[0];
  return parts.slice(0, parts[1] === "list" || parts[2] === "subagents" ? 3 : 2).join(".");
}

/** Where settings come from, and how many each place sets. */
function sources(settings) {
  const bySource = Map.groupBy(settings.filter(isSet), ({ source }) => source);
  return block("Where it comes from", null, bySource.size
    ? el("ul", { class: "counts" }, [...bySource].map(([source, rows]) => el("li", null, icon("file", 13), el("span", { class: "mono grow min" }, source), el("span", { class: "soft nowrap" }, `sets ${plural(rows.length, "value")}`))))
    : el("p", { class: "soft" }, "Nothing is set: every value is the default. ", el("code", null, "fledge init"), " writes a settings file with all of them, commented."));
}

const table = (name, rows) => block(name, null, el("table", { class: "settab" },
  el("thead", null, el("tr", null, ["setting", "value", "default", "from"].map((word) => el("th", { scope: "col" }, word)))),
  el("tbody", null, rows.map((one) => el("tr", { class: isSet(one) ? "set" : null, "data-key": one.key },
    el("th", { scope: "row" }, el("span", { class: "mono" }, one.key), one.meaning && el("p", { class: "soft" }, one.meaning)),
    el("td", { class: "mono value" }, one.value), el("td", { class: "mono faint default" }, one.default), el("td", { class: "faint from" }, one.source))))));
