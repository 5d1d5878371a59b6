"use strict";
// Elements, and text that shows what it holds. Texts of the trace are hostile: they reach the document as text nodes
// and nothing else. They may also be huge: a long one is shown a piece at a time.

const FIRST = { lines: 40, characters: 6000 };
const SPOKEN = { lines: 16, characters: 2000 }; // what is not tool output is not what one came to see
const MORE = { lines: 1000, characters: 60000 };
const MOST_IN_LINE = 600; // characters of a name

function byId(id) {
  return document.getElementById(id);
}

function make(tag, name, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

function button(name, label, act) {
  const made = make("button", name, label);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

const digits = new Intl.NumberFormat("en");
const number = (value) => digits.format(value).replace("-", "\u2212");
const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1).replace("-", "\u2212")}%` : "\u2013");

// Controls but newline and tab, line separators, marks that turn the direction of text, invisible characters, halves
// of surrogate pairs.
const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e" +
    "\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb]|[\\udb40\\udb41][\\udc00-\\udfff]" +
    "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  "g",
);
const CONTROLS =
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US";
const NAMES = CONTROLS.split(" ");

function nameOf(character) {
  const code = character.codePointAt(0);
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

function nodesOf(text) {
  const nodes = [];
  let last = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > last) nodes.push(text.slice(last, found.index));
    last = found.index + found[0].length;
    const isLineEnd = found[0] === "\r" && text[last] === "\n";
    nodes.push(make("span", isLineEnd ? "hidden line-end" : "hidden", nameOf(found[0])));
  }
  if (last < text.length) nodes.push(text.slice(last));
  return nodes;
}

const inLine = (text) => make("bdi", "", ...nodesOf(cutOff(text).replace(/[\n\t]/g, " ")));
const cutOff = (text) => (text.length > MOST_IN_LINE ? `${text.slice(0, MOST_IN_LINE)}\u2026` : text);

function endOfPiece(text, start, limit) {
  let end = start;
  for (let line = 0; line < limit.lines && end < text.length; line++) {
    const newline = text.indexOf("\n", end);
    end = newline < 0 ? text.length : newline + 1;
  }
  end = Math.min(end, start + limit.characters);
  const half = end < text.length && /[\ud800-\udbff]/.test(text[end - 1]);
  return half ? end + 1 : end;
}

// Appends parts [text, differs] up to the limit, and a button that goes on.
function pour(target, parts, limit) {
  let lines = limit.lines;
  let characters = limit.characters;
  let place = 0;
  while (place < parts.length && lines > 0 && characters > 0) {
    const [text, differs] = parts[place];
    const end = endOfPiece(text, 0, { lines, characters });
    const shown = text.slice(0, end);
    const nodes = nodesOf(end === text.length && place === parts.length - 1 ? shown.replace(/\n$/, "") : shown);
    target.append(...(differs ? [make("mark", "", ...nodes)] : nodes));
    lines -= shown.split("\n").length - 1;
    characters -= shown.length;
    if (end < text.length) {
      parts = [[text.slice(end), differs], ...parts.slice(place + 1)];
      place = 0;
      break;
    }
    place += 1;
  }
  const rest = parts.slice(place);
  if (rest.length) target.append(moreButton(rest, (more) => (more.remove(), pour(target, rest, MORE))));
}

function moreButton(rest, act) {
  const characters = rest.reduce((sum, [text]) => sum + text.length, 0);
  const lines = rest.reduce((sum, [text]) => sum + text.split("\n").length - 1, 0);
  const left = lines ? `${many(lines, "line")}, ${many(characters, "character")}` : many(characters, "character");
  const more = button("more", `show more: ${left} left`, () => act(more));
  return more;
}

function textView(text, limit) {
  const view = make("div", "text");
  pour(view, [[text, false]], limit);
  return view;
}
