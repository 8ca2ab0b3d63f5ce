// Preferences that this browser keeps: light or dark, and the switches of Settings. Nothing secret is kept here.

const PREFIX = "fledge.";
export const THEMES = ["auto", "light", "dark"];

/** The switches of Settings, with their defaults. */
const SWITCHES = { letters: true, notices: false, fold: true, calm: false };

const stored = (name) => { try { return localStorage.getItem(PREFIX + name); } catch { return null; } };
const store = (name, value) => { try { localStorage.setItem(PREFIX + name, value); } catch { /* a private window forgets */ } };

export const theme = () => (THEMES.includes(stored("theme")) ? stored("theme") : "auto");

/** True if a switch is on. */
export const isOn = (name) => (stored(name) ?? String(SWITCHES[name])) === "true";

/** Turn a switch on or off. */
export function turn(name, on) {
  store(name, String(on));
  paint();
}

/** Set the theme; the window then gets the event `theme`. */
export function chooseTheme(name) {
  store("theme", name);
  paint();
  dispatchEvent(new Event("theme"));
}

/** Set the next theme, and answer its name. */
export function nextTheme() {
  chooseTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  return theme();
}

/** Apply the chosen theme and calm to the page. */
export function paint() {
  const root = document.documentElement;
  if (theme() === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme();
  root.toggleAttribute("data-calm", isOn("calm"));
}
