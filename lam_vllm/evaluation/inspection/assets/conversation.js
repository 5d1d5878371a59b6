// The conversation from top to bottom, every cut in its place. It is built as the reader comes near.

const STEPS = 150; // messages and cuts that are built at a time
const data = JSON.parse(byId("data").textContent);
const main = byId("main");

const LAYER_TITLES = Object.fromEntries(data.layers.map((layer) => [layer.name, layer.title]));

function placeOf(cut) {
  const of = `of result ${cut.result}`;
  if (cut.lines === null) return `result ${cut.result}`;
  const [first, last] = cut.lines;
  return first === last ? `${cut.unit} ${first} ${of}` : `${cut.unit}s ${first}\u2013${last} ${of}`;
}

const here = (cut) => make("p", "side-title", `original, taken out ${cut.kept ? "but for the lines below" : "here"}`);

function there(cut) {
  const title = make("p", "side-title", "representative, ");
  title.append(button("link", placeOf(cut), () => goToResult(cut.result)));
  return title;
}

function cutView(cut) {
  const view = make("section", `cut ${cut.layer}`);
  view.dataset.number = cut.number;
  if (cut.layer === "alias") {
    const note = make("div", "head note", tag(cut), make("code", "stub", inLine(cut.stub)), saving(cut));
    note.append(make("span", "aside", "in the prompt, lines below begin with the short name"));
    note.tabIndex = -1;
    note.dataset.stop = "";
    view.append(note);
    return view;
  }
  const silent = make("span", "silent", `${many(linesOf(cut.original).length, "line")} dropped without a trace`);
  const stub = cut.stub ? make("code", "stub", inLine(cut.stub)) : silent;
  const head = button("head", "", () => toggle(view, cut));
  head.append(tag(cut), stub, saving(cut));
  head.setAttribute("aria-expanded", "false");
  head.dataset.stop = "";
  view.append(head);
  if (cut.kept) view.append(make("div", "kept", textView(cut.kept, FIRST)));
  return view;
}

function tag(cut) {
  const made = make("span", "tag", cut.layer);
  made.title = LAYER_TITLES[cut.layer];
  return made;
}

function saving(cut) {
  const made = make("span", "saving", number(-cut.tokens.net));
  made.title = `tokens: ${number(cut.tokens.removed)} removed, stub ${number(cut.tokens.stubs)}`;
  return made;
}

function toggle(view, cut) {
  const head = view.firstChild;
  const open = head.getAttribute("aria-expanded") === "true";
  head.setAttribute("aria-expanded", String(!open));
  if (open) view.querySelector(".body").remove();
  else head.after(make("div", "body", facts(cut), cut.stub ? comparison(cut) : droppedLines(cut)));
}

function facts(cut) {
  const { removed, stubs, net } = cut.tokens;
  const made = make("p", "cut-facts");
  const items = [`${number(removed)} tokens removed, stub ${number(stubs)}, net ${number(net)}`];
  if (cut.representative === null) items.push("byte for byte the same");
  if (cut.shift) items.push(`line numbers ${cut.shift > 0 ? "+" : "\u2212"}${number(Math.abs(cut.shift))}`);
  if (cut.kept) items.push(`${many(linesOf(cut.kept).length, "new line")} kept below`);
  items.forEach((item) => made.append(make("span", "", item)));
  if (data.delta && cut.layer === "l1") made.append(distance(cut));
  return made;
}

function distance(cut) {
  const fill = make("i", "");
  fill.style.width = `${Math.min(100, (100 * cut.distance) / data.delta)}%`;
  const text = `distance ${cut.distance.toFixed(3)} of at most \u03b4\u00a0=\u00a0${data.delta.toFixed(3)}`;
  return make("span", "distance", text, make("span", "gauge", fill));
}

function droppedLines(cut) {
  const note = make("p", "side-title", "each stands earlier in the prompt, the first of them in ");
  note.append(button("link", `result ${cut.result}`, () => goToResult(cut.result)));
  return make("div", "compare", make("div", "column", note, textView(cut.original, FIRST)));
}

function* conversation() {
  for (const turn of data.turns) {
    const view = make("section", "turn", turnHead(turn));
    view.id = `turn-${turn.number}`;
    main.append(view);
    for (const entry of turn.entries) yield* message(view, entry);
  }
}

function turnHead(turn) {
  const title = make("h2", "", turn.number ? `Turn ${turn.number}` : "Before the first turn");
  title.tabIndex = -1;
  const { original, removed, stubs, net } = turn.tokens;
  const sums = make("p", "sums");
  if (original) {
    const cut = [[removed, "removed"], [stubs, "stubs"], [net, `net, ${share(net, original)}`]];
    const items = [[original, "tokens of tool output"], ...(removed ? cut : [])];
    items.forEach(([value, name]) => sums.append(make("span", "", make("b", "", number(value)), ` ${name}`)));
  }
  return make("header", "turn-head", title, sums);
}

function* message(view, entry) {
  const label = make("header", "label", make("span", "role", inLine(entry.role)));
  if (entry.result !== null) label.append(make("span", "result", `result ${entry.result}`));
  if (entry.name) label.append(make("span", "name", inLine(entry.name)));
  const body = make("div", "content");
  const article = make("article", entry.result === null ? "message" : "message observed", label, body);
  if (entry.result !== null) article.id = `result-${entry.result}`;
  view.append(article);
  const limit = entry.result === null ? SPOKEN : FIRST;
  for (const block of entry.blocks) {
    yield* blockView(body, block, limit);
    yield;
  }
  yield;
}

function* blockView(body, block, limit) {
  const view = make("div", `block is-${block.kind}`);
  body.append(view);
  if (block.kind === "call") view.append(make("span", "call-name", inLine(block.label)));
  if (block.kind === "reasoning") view.append(make("span", "call-name", "reasoning"));
  if (block.kind === "other") view.append(inLine(`${block.label}, as it came`));
  for (let place = 0; place < block.spans.length; place++) {
    const span = block.spans[place];
    if (typeof span !== "string") {
      view.append(cutView(span));
      yield;
      continue;
    }
    const shown = place && !endsLine(block.spans[place - 1]) ? span.replace(/^\n/, "") : span;
    if (shown || block.spans.length === 1) view.append(textView(shown, limit));
  }
}

// A cut takes a line of the page: where its span left the end of its line to the text behind, that end is shown.
const endsLine = (span) => typeof span === "string" || !span.original || span.original.endsWith("\n");

const building = conversation();
const sentinel = make("div", "sentinel");
let complete = false;

function build(steps) {
  for (let step = 0; step < steps && !complete; step++) complete = building.next().done;
  main.append(sentinel);
  if (complete) sentinel.remove();
}

function buildWhileNear() {
  if (complete || sentinel.getBoundingClientRect().top > 2 * innerHeight) return;
  build(STEPS);
  requestAnimationFrame(buildWhileNear);
}

function buildUntil(find) {
  while (!find() && !complete) build(STEPS);
  return find();
}
