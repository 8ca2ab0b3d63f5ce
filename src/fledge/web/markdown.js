// Markdown as elements. No markup is ever made from text: every word becomes a text node, and syntax that is not known
// stays as it was written. There is no HTML, no image is loaded, links lead only to http(s) and mailto, and a link
// shows where it leads.
//
// Texts are hostile, so the time is linear in the length: each loop advances, nesting is bounded, and a mark without a
// partner is searched for a bounded number of times.

import { copyButton, el, icon, plain } from "./dom.js";

const MOST_CHARS = 100_000; // a longer text is shown as it is
const MOST_NESTED = 6; // lists and quotes
const MOST_INLINE = 5; // emphasis in emphasis
const MOST_COLOURED = 20_000; // longer code has no colours

const FENCE = /^\s{0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const HEADING = /^(#{1,6})\s+/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>/;
const ROW = /^\s*\|.*\|\s*$/;
const BODY_ROW = /^\s*\|/; // its last sign may be missing, or not have come yet
const DELIMITERS = /^\s*\|[\s:|-]+\|\s*$/;
const PART_OF_DELIMITERS = /^[\s:|-]*$/;
const NUMBER = /^[^\p{L}]{0,30}\d[^\p{L}]{0,30}$/u; // with its signs: 1,204.50 $, 2026-11-19, ≈ 3 %
const RULE = /^\s{0,3}([-*_])(?:\s*\1){2,}\s*$/;

/** A text as an element of class `md`. `isOpen`: more of it is still to come. */
export function markdown(text, isOpen = false) {
  const shown = plain(text);
  if (shown.length > MOST_CHARS) return el("pre", { class: "md", dir: "auto" }, shown);
  const lines = shown.split("\n");
  const levels = [...new Set(lines.map((line) => HEADING.exec(line)?.[1].length).filter(Boolean))].sort();
  return el("div", { class: "md", dir: "auto" }, blocks(lines, 0, levels, isOpen));
}

/** The elements of these lines. `levels`: the levels of headings in the whole text, so that none is skipped. */
function blocks(lines, depth, levels, isOpen = false) {
  const made = [];
  let at = 0;
  /** The lines from here on for which `goes` holds; at least one. */
  const take = (goes) => {
    const from = at;
    for (at += 1; at < lines.length && goes(lines[at], at); at += 1);
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) {
      const [, ...body] = take((one) => !one.trimStart().startsWith(fence[1]));
      at += 1; // the closing fence
      made.push(code(body.join("\n"), fence[2].trim()));
    } else if (RULE.test(line)) { made.push(el("hr")); at += 1; }
    else if (HEADING.test(line)) { made.push(heading(line, levels)); at += 1; }
    else if (QUOTE.test(line) && depth < MOST_NESTED) {
      const body = take((one) => QUOTE.test(one)).map((one) => one.replace(/^\s*>\s?/, ""));
      made.push(el("blockquote", null, blocks(body, depth + 1, levels)));
    } else if (beginsTable(lines, at, isOpen)) made.push(table(take((one) => BODY_ROW.test(one))));
    else if (ITEM.test(line) && depth < MOST_NESTED) made.push(list(take((one, n) => isOfList(one, lines[n + 1] ?? "")), depth, levels));
    else made.push(el("p", null, inline(take(isOfParagraph).join("\n"))));
  }
  return made;
}

/** True if a table begins here. In a text that is still to be continued it does with its first row. */
function beginsTable(lines, at, isOpen) {
  if (ROW.test(lines[at]) && DELIMITERS.test(lines[at + 1] ?? "")) return true;
  return isOpen && BODY_ROW.test(lines[at]) && at + 2 >= lines.length && PART_OF_DELIMITERS.test(lines[at + 1] ?? "");
}

const isOfList = (line, next) => ITEM.test(line) || /^\s{2,}\S/.test(line) || (line.trim() === "" && (ITEM.test(next) || /^\s{2,}\S/.test(next)));
const isOfParagraph = (line) => line.trim() !== "" && ![FENCE, HEADING, QUOTE, ITEM, RULE].some((begin) => begin.test(line));

function heading(line, levels) {
  const level = HEADING.exec(line)[1].length;
  const words = line.replace(HEADING, "").replace(/\s#+$/, "");
  return el("p", { class: `h h${level}`, role: "heading", "aria-level": Math.min(6, 2 + levels.indexOf(level)) }, inline(words));
}

function list(lines, depth, levels) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const made = el(/\d/.test(mark) ? "ol" : "ul", /\d/.test(mark) ? { start: parseInt(mark, 10) } : null);
  const items = [];
  for (const line of lines) {
    const begin = ITEM.exec(line);
    if (begin && begin[1].length <= indent.length + 1) items.push([begin[3]]);
    else items.at(-1).push(line.slice(Math.min(indent.length + 2, /^\s*/.exec(line)[0].length)));
  }
  made.append(...items.map((body) => item(body, depth, levels)));
  return made;
}

function item(body, depth, levels) {
  const task = /^\[([ xX])\]\s+/.exec(body[0]);
  if (task) body[0] = body[0].slice(task[0].length);
  const parts = blocks(body, depth + 1, levels);
  const isDone = task && task[1] !== " ";
  const box = task && el("span", { class: `taskbox ${isDone ? "on" : ""}`, role: "img", "aria-label": isDone ? "done" : "to do" }, isDone && icon("check", 11));
  // The first paragraph of an item stands beside its mark.
  const isPlain = parts[0]?.tagName === "P" && !parts[0].classList.contains("h");
  return el("li", { class: task && "task" }, box, isPlain ? [...parts.shift().childNodes] : null, parts);
}

function table(rows) {
  const cells = (line) => line.trim().slice(1).replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const sides = cells(rows[1] ?? "").map((cell) => (/^:-+:$/.test(cell) ? "middle" : /-:$/.test(cell) ? "right" : null));
  const tableRow = (line, tag) => el("tr", null, cells(line).map((cell, n) => el(tag, { class: [sides[n], NUMBER.test(cell) && "whole"].filter(Boolean).join(" ") || null }, inline(cell))));
  return el("div", { class: "tablebox", tabindex: "0", role: "group", "aria-label": "Table" },
    el("table", null, el("thead", null, tableRow(rows[0], "th")), el("tbody", null, rows.slice(2).map((line) => tableRow(line, "td")))));
}

const SPECIAL = /[`*_~[!\\]|https?:\/\//g;
const LINK = /!?\[([^\]\n]{0,300})\]\(([^()\s]{1,2000})\)/y;
const BARE = /https?:\/\/[^\s<>()]{2,2000}/y;
const MOST_TRIES = 8;

/** Words of one line or paragraph, as nodes and strings, in one pass. */
export function inline(text, depth = 0) {
  const made = [];
  const missing = new Set(); // marks that do not come again
  let at = 0;
  let from = 0;
  const put = (end, node, next) => {
    made.push(text.slice(from, end), node);
    at = from = next;
  };
  /** Where emphasis that began before `begin` ends; -1 if it does not. */
  const closing = (mark, begin) => {
    if (missing.has(mark)) return -1;
    let end = text.indexOf(mark, begin);
    if (end < 0) missing.add(mark);
    for (let tries = 0; tries < MOST_TRIES && end >= 0; tries += 1, end = text.indexOf(mark, end + 1)) {
      const isInWord = mark[0] === "_" && /\w/.test(text[end + mark.length] ?? "");
      if (end > begin && !/\s/.test(text[end - 1]) && !isInWord) return end;
    }
    return -1;
  };
  while (at < text.length && depth < MOST_INLINE) {
    SPECIAL.lastIndex = at;
    const hit = SPECIAL.exec(text);
    if (!hit) break;
    const begin = hit.index;
    const sign = hit[0];
    at = begin + sign.length;
    if (sign === "\\") {
      if (/[!-/:-@[-`{-~]/.test(text[at] ?? "")) put(begin, text[at], at + 1);
    } else if (sign === "`") {
      const ticks = /^`{1,20}/.exec(text.slice(begin, begin + 20))[0];
      at = begin + ticks.length;
      const end = missing.has(ticks) ? -1 : text.indexOf(ticks, at);
      if (end < 0) missing.add(ticks);
      else put(begin, el("code", null, text.slice(at, end)), end + ticks.length);
    } else if (sign === "[" || sign === "!") {
      LINK.lastIndex = begin;
      const found = LINK.exec(text);
      const made = found && link(found[2], sign === "!" ? `image: ${found[1] || found[2]}` : found[1] || found[2]);
      if (made) put(begin, made, begin + found[0].length);
    } else if (sign.length > 1) {
      BARE.lastIndex = begin;
      const found = withoutEnd(BARE.exec(text)?.[0] ?? sign);
      const made = link(found, found);
      if (made) put(begin, made, begin + found.length);
      else at = begin + found.length;
    } else {
      const mark = text[begin + 1] === sign ? sign + sign : sign;
      at = begin + mark.length;
      const isBegin = !(mark === "~") && /\S/.test(text[at] ?? "") && !(sign === "_" && /\w/.test(text[begin - 1] ?? ""));
      const end = isBegin ? closing(mark, at) : -1;
      if (end > at) put(begin, el(sign === "~" ? "s" : mark.length > 1 ? "strong" : "em", null, inline(text.slice(at, end), depth + 1)), end + mark.length);
    }
  }
  made.push(text.slice(from));
  return made;
}

/** An address in a sentence, without the signs that end the sentence. */
function withoutEnd(address) {
  let end = address.length;
  while (".,;:!?'\"*_".includes(address[end - 1])) end -= 1;
  return address.slice(0, end);
}

/** A link, with its host if the words do not name that; null if its address is not allowed. */
function link(address, words) {
  let to;
  try { to = new URL(address); } catch { return null; }
  if (!["http:", "https:", "mailto:"].includes(to.protocol)) return null;
  const shown = to.host && !words.includes(to.host) ? el("span", { class: "host" }, ` (${to.host})`) : null;
  return el("a", { href: to.href, target: "_blank", rel: "noopener noreferrer", title: to.href }, words, shown);
}

const TOKENS = /(#[^\n]*|\/\/[^\n]*|--\s[^\n]*)|("(?:[^"\\\n]|\\.){0,400}"|'(?:[^'\\\n]|\\.){0,400}')|\b(and|as|async|await|break|case|class|const|continue|def|elif|else|except|export|false|finally|fn|for|from|func|function|if|impl|import|in|insert|into|is|lambda|let|match|new|none|not|null|or|pass|pub|raise|return|select|self|set|struct|then|this|throw|true|try|type|update|use|var|where|while|with|yield)\b|\b(\d[\d_.]*)\b/gi;

/** A block of code with its name, a button to copy it, and a few colours. The name's first word is the language. */
export function code(text, info = "") {
  const language = info.split(/\s/, 1)[0];
  const body = el("code");
  if (language === "diff") body.append(...text.split("\n").map(diffLine));
  else if (language && text.length < MOST_COLOURED) body.append(...coloured(text));
  else body.append(plain(text));
  const name = info || "text";
  return el("div", { class: "code" },
    el("div", { class: "codehead" }, el("span", null, name), copyButton(text, "Copy this code")),
    el("pre", { tabindex: "0", role: "group", "aria-label": `${name} code`, dir: "ltr" }, body));
}

function diffLine(line) {
  const kind = line.startsWith("@@") ? "d-at" : line[0] === "+" ? "d-add" : line[0] === "-" ? "d-del" : "d-same";
  return el("span", { class: kind }, line || " ");
}

function coloured(text) {
  const made = [];
  let from = 0;
  for (const hit of text.matchAll(TOKENS)) {
    const kind = hit[1] ? "t-com" : hit[2] ? "t-str" : hit[3] ? "t-key" : "t-num";
    made.push(plain(text.slice(from, hit.index)), el("span", { class: kind }, hit[0]));
    from = hit.index + hit[0].length;
  }
  made.push(plain(text.slice(from)));
  return made;
}
