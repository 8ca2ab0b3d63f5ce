// The box in which a person writes: it grows, `/` lists commands, Enter sends and Shift-Enter breaks the line, files are
// attached by a button, by pasting or by dropping. The typed text is kept for each conversation until it is sent.

import { announce, button, el, fail, fill, icon, write } from "./dom.js";
import { bytes } from "./format.js";
import { call } from "./gateway.js";

const DRAFT = "fledge.draft.";
const MOST_PX = 220;
const MOST_SHOWN = 9; // commands at a time; the arrow keys move the rest into sight
const COMMAND = /^\/[a-zA-Z]+(\s|$)/; // as the gateway reads it: a text that begins with a path is a message
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const IMAGE_BYTES = 3.75 * 1024 * 1024; // larger ones are files like any other
const FILE_BYTES = 64 * 1024 * 1024; // the most that the page reads; the gateway decides how much a message may carry

let commands = null; // [{ name, form, meaning }], asked for once

async function knownCommands() {
  if (commands === null) {
    const found = await call("slash.list");
    commands = found.map(({ form, meaning }) => ({ form, meaning, name: /^[^<[]*/.exec(form)[0].trim() }));
    commands.sort((one, other) => one.name.split(" ").length - other.name.split(" ").length); // /stop before /subagents list
  }
  return commands;
}

/** Build the composer of a conversation. `acts`: say(text, files), command(line), stop(), model(). A file has a name,
 * its size, its data in base64, and whether it is an image. Answers the element, `focus()`, `put(text, files)`,
 * `add(text, files)`, which goes before what is there, `isEmpty()`, and `model(words)`, which shows the agent and model that answer here. */
export function composer(key, acts) {
  const say = el("textarea", { id: "say", rows: 1, placeholder: "Message, or / for commands", "aria-label": "Message, or a command such as /help", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": "slash", autocomplete: "off" });
  const menu = el("ul", { class: "slash", id: "slash", role: "listbox", "aria-label": "Commands", hidden: true });
  const files = el("ul", { class: "files", "aria-label": "Attached", hidden: true });
  const picker = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach" });
  const model = button("model", { kind: "ghost small picker", title: "The model that answers here. Press to change", act: acts.model });
  let attached = [];
  let found = [];
  let at = 0;
  let menuOff = false;

  const grow = () => {
    say.style.setProperty("height", "auto");
    say.style.setProperty("height", `${Math.min(say.scrollHeight, MOST_PX)}px`);
  };
  const drawMenu = () => {
    menu.hidden = !found.length;
    at = Math.max(0, Math.min(at, found.length - 1));
    if (found.length) say.setAttribute("aria-activedescendant", `slash-${at}`);
    else say.removeAttribute("aria-activedescendant");
    const from = Math.max(0, Math.min(at - MOST_SHOWN + 1, found.length - MOST_SHOWN));
    fill(menu, found.slice(from, from + MOST_SHOWN).map((one, n) => el("li", { id: `slash-${from + n}`, role: "option", "aria-selected": String(from + n === at), "aria-setsize": found.length, "aria-posinset": from + n + 1, on: { pointerdown: (event) => { event.preventDefault(); choose(one); } } },
      el("b", { class: "mono" }, one.name), el("span", { class: "faint mono" }, one.form.slice(one.name.length)), el("span", { class: "grow soft end" }, one.meaning))));
  };
  const look = async () => {
    grow();
    sessionStorage.setItem(DRAFT + key, say.value);
    if (!say.value) sessionStorage.removeItem(DRAFT + key);
    const text = say.value;
    if (!text.startsWith("/") || text.includes("\n") || menuOff) { found = []; drawMenu(); return; }
    const known = await knownCommands();
    if (say.value !== text) return;
    found = known.filter(({ name }) => name.startsWith(text.trimEnd()));
    if (found.length) announce(`${found.length} commands`);
    drawMenu();
  };
  const put = (text, files = attached) => {
    say.value = text;
    attached = files;
    drawFiles();
    look().catch(fail);
  };
  const add = (text, more) => put(say.value ? `${text}\n\n${say.value}` : text, [...more, ...attached]);
  const choose = (one) => { menuOff = one.form === one.name; put(one.form === one.name ? one.name : `${one.name} `); say.focus(); };

  const submit = () => {
    const text = say.value.trim();
    if (text === "" && !attached.length) return;
    menuOff = false;
    const sent = attached;
    put("", []);
    if (COMMAND.test(text) && !sent.length) acts.command(text);
    else acts.say(text || `See the attached ${sent.every((file) => file.isImage) ? "image" : "file"}${sent.length > 1 ? "s" : ""}.`, sent);
  };

  const drawFiles = () => {
    files.hidden = !attached.length;
    fill(files, attached.map((file, n) => el("li", { class: "attach" }, icon("file", 13), file.name, el("span", { class: "faint" }, bytes(file.size)),
      button("", { kind: "ghost tiny", ico: "x", label: `Leave out ${file.name}`, act: () => { attached.splice(n, 1); drawFiles(); } }))));
  };
  const attach = async (list) => {
    for (const file of list) {
      if (file.size > FILE_BYTES) throw new Error(`${file.name} has ${bytes(file.size)}: that is more than a message can carry`);
      if (!file.size) throw new Error(`${file.name} is empty, or a folder`);
      const isImage = IMAGES.includes(file.type) && file.size <= IMAGE_BYTES;
      attached.push({ name: file.name, size: file.size, isImage, data: await base64(file) });
      drawFiles();
    }
  };
  picker.addEventListener("change", () => { attach([...picker.files]).catch(fail); picker.value = ""; });

  say.addEventListener("input", () => { menuOff = false; at = 0; look().catch(fail); });
  say.addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files];
    if (pasted.length) { event.preventDefault(); attach(pasted).catch(fail); }
  });
  say.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const isOpen = !menu.hidden;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (isOpen && step) { event.preventDefault(); at = (at + step + found.length) % found.length; drawMenu(); }
    else if (isOpen && (event.key === "Tab" || (event.key === "Enter" && found[at].name !== say.value.trim()))) { event.preventDefault(); choose(found[at]); }
    else if (isOpen && event.key === "Escape") { event.preventDefault(); event.stopPropagation(); menuOff = true; found = []; drawMenu(); }
    else if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); submit(); }
  });

  const element = el("form", { class: "composer", id: "composer", on: {
    submit: (event) => { event.preventDefault(); submit(); },
    dragover: (event) => event.preventDefault(),
    drop: (event) => { event.preventDefault(); attach([...event.dataTransfer.files]).catch(fail); },
  } }, menu, el("div", { class: "box" }, files, say,
    el("div", { class: "boxline" },
      button("", { kind: "ghost", ico: "clip", label: "Attach files", act: () => picker.click() }), picker,
      button("", { kind: "ghost", ico: "json", label: "Commands", act: () => { say.focus(); menuOff = false; put("/"); } }),
      el("span", { class: "grow" }), model,
      button("", { ico: "stop", label: "Stop this turn", title: "Stop this turn. Subagents go on", id: "stop", act: acts.stop }),
      el("button", { type: "submit", class: "btn primary", "aria-label": "Send", title: "Send" }, icon("up")))));
  say.value = sessionStorage.getItem(DRAFT + key) ?? "";
  requestAnimationFrame(grow);
  return { element, focus: () => say.focus(), put, add, isEmpty: () => say.value === "" && !attached.length, model: (words) => write(model.querySelector("span"), words) };
}

function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
