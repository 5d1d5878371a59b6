// Moving about, filters, theme, totals, keys; and the start.

const MOST_TURNS = 1000; // rows of the table that are built at a time

const shownHeads = () => [...main.querySelectorAll(".cut [data-stop]")].filter((head) => head.offsetParent);
const turnTitles = () => [...main.querySelectorAll(".turn h2")];

function focusAt(element, block) {
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block });
  buildWhileNear();
}

// The reader's place: what has the focus, if it is on the screen, else the top of what is on it.
function readingLine() {
  const top = byId("bar").getBoundingClientRect().bottom;
  const active = document.activeElement;
  const at = main.contains(active) ? active.getBoundingClientRect() : null;
  return at && at.bottom > top && at.top < innerHeight ? at.top : top;
}

function step(list, direction, block) {
  const line = readingLine();
  const top = (element) => element.getBoundingClientRect().top;
  const active = document.activeElement;
  const ahead = (element) => element !== active && top(element) > line - (main.contains(active) ? -1 : 1);
  const behind = (element) => element !== active && top(element) < line - 1;
  const find = direction > 0 ? () => list().find(ahead) : () => list().findLast(behind);
  const found = direction > 0 ? buildUntil(find) : find();
  if (found) focusAt(found, block);
}

const stepCut = (direction) => step(shownHeads, direction, "center");
const stepTurn = (direction) => step(turnTitles, direction, "start");

function goToResult(result) {
  const found = buildUntil(() => byId(`result-${result}`));
  if (!found) return;
  found.tabIndex = -1;
  focusAt(found, "start");
}

function goToTurn(turn) {
  const found = buildUntil(() => byId(`turn-${turn}`));
  if (found) focusAt(found.querySelector("h2"), "start");
}

function unfold() {
  const view = document.activeElement?.closest(".cut");
  const head = view?.querySelector("button.head");
  if (!head) return;
  head.click();
  focusAt(head, "nearest");
}

const chips = data.layers.map((layer, place) => {
  const chip = button(`chip ${layer.name}`, "", () => setLayer(chip, chip.getAttribute("aria-pressed") !== "true"));
  chip.append(make("span", "tag", layer.name), make("span", "chip-count", number(layer.cuts)));
  chip.title = `${layer.title}: ${many(layer.cuts, "cut")}, net ${number(layer.tokens.net)} tokens (${place + 1})`;
  chip.dataset.layer = layer.name;
  chip.disabled = !layer.cuts;
  chip.setAttribute("aria-pressed", "true");
  return chip;
});

function setLayer(chip, on) {
  if (chip.disabled) return;
  chip.setAttribute("aria-pressed", String(on));
  main.classList.toggle(`without-${chip.dataset.layer}`, !on);
  tellPlace();
  buildWhileNear();
}

function tellPlace() {
  const on = chips.map((chip) => chip.getAttribute("aria-pressed") === "true");
  const cuts = data.layers.reduce((sum, layer, place) => sum + (on[place] ? layer.cuts : 0), 0);
  const at = document.activeElement?.closest(".cut")?.dataset.number;
  byId("place").textContent = at ? `${number(Number(at))} of ${number(data.cuts)}` : many(cuts, "cut");
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function switchTheme() {
  const root = document.documentElement;
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
}

function showTotals() {
  const { original, removed, stubs, net } = data.tokens;
  const figures = [
    ["tokens of tool output", number(original)],
    ["removed", number(removed)],
    ["spent on stubs", number(stubs)],
    ["saved, net", number(net), share(net, original)],
  ];
  figures.forEach(([name, ...values], place) => {
    const made = make("div", "", make("dt", "", name), make("dd", "", ...values.map((value) => make("b", "", value))));
    made.dataset.total = ["original", "removed", "stubs", "net"][place];
    byId("totals").append(made);
  });
}

function showFacts() {
  const items = [`profile ${data.profile}`, many(data.turns.filter((turn) => turn.number).length, "turn")];
  if (data.delta) {
    const attained = `\u03b4\u0302\u00a0=\u00a0${data.deltaHat.toFixed(3)} attained`;
    items.push(`\u03b4\u00a0=\u00a0${data.delta.toFixed(3)} allowed, ${attained}`);
  }
  const kept = Object.entries(data.reasons).map(([reason, count]) => `${reason.replaceAll("_", " ")} ${number(count)}`);
  if (kept.length) items.push(`results left as they came: ${kept.join(", ")}`);
  items.forEach((item) => byId("facts").append(make("span", "", item)));
}

function sumCells(tokens) {
  return ["original", "removed", "stubs", "net"].map((key) => make("td", key, tokens[key] ? number(tokens[key]) : ""));
}

function showTurns(start, most) {
  for (const turn of data.turns.slice(start, start + MOST_TURNS)) {
    const link = button("link", turn.number ? String(turn.number) : "start", () => goToTurn(turn.number));
    const head = make("th", "", link);
    head.scope = "row";
    const cells = [make("td", "", turnBar(turn.tokens, most)), ...sumCells(turn.tokens)];
    byId("turns").append(make("tr", turn.tokens.net ? "" : "untouched", head, ...cells));
  }
  const left = data.turns.length - start - MOST_TURNS;
  if (left <= 0) return;
  const more = button("more", `show more: ${many(left, "turn")} left`, () => {
    more.remove();
    showTurns(start + MOST_TURNS, most);
  });
  byId("turns").closest("table").after(more);
}

function showSum() {
  const head = make("th", "", "run");
  head.scope = "row";
  byId("sum").append(make("tr", "", head, make("td", ""), ...sumCells(data.tokens)));
}

// The turn's tool output against the largest turn's, and the share of it that is gone.
function turnBar(tokens, most) {
  const gone = make("i", "");
  gone.style.width = `${Math.min(100, (100 * Math.max(0, tokens.net)) / Math.max(1, tokens.original))}%`;
  const bar = make("span", "turn-bar", gone);
  bar.style.width = `${(100 * tokens.original) / most}%`;
  return bar;
}

const KEYS = {
  j: () => stepCut(1),
  k: () => stepCut(-1),
  o: unfold,
  t: () => stepTurn(1),
  T: () => stepTurn(-1),
  0: () => chips.forEach((chip) => setLayer(chip, true)),
  d: switchTheme,
  "?": () => byId("keys").showModal(),
};
chips.forEach((chip, place) => (KEYS[place + 1] = () => chip.click()));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || byId("keys").open || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

byId("previous").addEventListener("click", () => stepCut(-1));
byId("next").addEventListener("click", () => stepCut(1));
byId("theme").addEventListener("click", switchTheme);
byId("help").addEventListener("click", KEYS["?"]);
byId("close").addEventListener("click", () => byId("keys").close());
document.addEventListener("focusin", tellPlace);
document.addEventListener("scroll", buildWhileNear, { passive: true });
addEventListener("resize", buildWhileNear);

document.title = `lam-vllm inspect: ${cutOff(data.run).replace(HIDDEN, nameOf)}`;
byId("run").append(inLine(data.run));
byId("layers").append(...chips);
byId("index").open = matchMedia("(min-width: 1100px)").matches;
showTotals();
showFacts();
showTurns(0, data.turns.reduce((most, turn) => Math.max(most, turn.tokens.original), 1));
showSum();
tellPlace();
buildWhileNear();
