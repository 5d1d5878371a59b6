// A removed text and what stands for it, side by side, with the words that differ marked.

const ROWS = 200; // rows of a comparison that are built at a time
const MOST_EDITS = 400;
const MOST_COMPARED = 4000; // lines, words: with more of them, they are compared one by one in order

// Pairs [i, j] of equal items in order: equal ends, and between them Myers' shortest edit where it is short enough.
function common(a, b) {
  const pairs = [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) pairs.push([start, start++]);
  let [aEnd, bEnd] = [a.length, b.length];
  while (aEnd > start && bEnd > start && a[aEnd - 1] === b[bEnd - 1]) [aEnd, bEnd] = [aEnd - 1, bEnd - 1];
  if (aEnd + bEnd - 2 * start <= MOST_COMPARED) {
    for (const [i, j] of shortestEdit(a.slice(start, aEnd), b.slice(start, bEnd))) pairs.push([start + i, start + j]);
  }
  for (let k = 0; aEnd + k < a.length; k++) pairs.push([aEnd + k, bEnd + k]);
  return pairs;
}

function shortestEdit(a, b) {
  const most = Math.min(MOST_EDITS, a.length + b.length);
  const furthest = new Int32Array(2 * most + 3);
  const trace = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(furthest.slice());
    for (let k = -edits; k <= edits; k += 2) {
      let i = isDown(furthest, most, edits, k) ? furthest[most + 1 + k + 1] : furthest[most + 1 + k - 1] + 1;
      while (i < a.length && i - k < b.length && a[i] === b[i - k]) i++;
      furthest[most + 1 + k] = i;
      if (i >= a.length && i - k >= b.length) return wayBack(trace, most, edits, a.length, b.length);
    }
  }
  return [];
}

function isDown(furthest, most, edits, k) {
  return k === -edits || (k !== edits && furthest[most + 1 + k - 1] < furthest[most + 1 + k + 1]);
}

function wayBack(trace, most, edits, i, j) {
  const pairs = [];
  for (let left = edits; left >= 0; left--) {
    const furthest = trace[left];
    const before = isDown(furthest, most, left, i - j) ? i - j + 1 : i - j - 1;
    const stop = left ? furthest[most + 1 + before] : 0;
    while (i > stop && j > stop - before) {
      if (left && i <= stop) break;
      pairs.push([--i, --j]);
    }
    if (left) [i, j] = [stop, stop - before];
  }
  return pairs.reverse();
}

// Pairs of line indexes that stand side by side; -1: no line on that side.
function* sideBySide(left, right, lineByLine) {
  if (lineByLine || left.length + right.length > MOST_COMPARED) {
    for (let k = 0; k < Math.max(left.length, right.length); k++) {
      yield [k < left.length ? k : -1, k < right.length ? k : -1];
    }
    return;
  }
  let [i, j] = [0, 0];
  for (const [toI, toJ] of [...common(left, right), [left.length, right.length]]) {
    for (; i < toI || j < toJ; i++, j++) yield [i < toI ? i : -1, j < toJ ? j : -1];
    if (toI < left.length && toJ < right.length) yield [toI, toJ];
    [i, j] = [toI + 1, toJ + 1];
  }
}

const wordsOf = (line) => (line.length > MORE.characters ? [line] : line.match(/\s+|[\p{L}\p{N}_]+|[^]/gu) ?? []);

// Both lines as parts [text, differs]. Lines that share less than a third are marked whole: confetti helps nobody.
function comparedWords(left, right) {
  const [a, b] = [wordsOf(left), wordsOf(right)];
  const pairs = common(a, b);
  const alike = pairs.reduce((sum, [i]) => sum + a[i].trim().length, 0);
  if (3 * alike < Math.min(left.trim().length, right.trim().length)) return [[[left, true]], [[right, true]]];
  return [parts(a, new Set(pairs.map(([i]) => i))), parts(b, new Set(pairs.map(([, j]) => j)))];
}

function parts(words, equal) {
  const made = [];
  words.forEach((word, place) => {
    const differs = !equal.has(place);
    if (made.length && made.at(-1)[1] === differs) made.at(-1)[0] += word;
    else made.push([word, differs]);
  });
  return made;
}

const linesOf = (text) => text.replace(/\n$/, "").split("\n");

function comparison(cut) {
  const left = linesOf(cut.original);
  const right = cut.representative === null ? left : linesOf(cut.representative);
  const view = make("div", "compare");
  const lineByLine = left.length === right.length && cut.layer === "l0" && !cut.kept;
  pourRows(view, sideBySide(left, right, lineByLine), left, right, [here(cut), there(cut)]);
  return view;
}

function pourRows(view, rows, left, right, titles) {
  const columns = [make("div", "column"), make("div", "column")];
  titles.forEach((title, side) => columns[side].append(title));
  let row = titles.length ? 1 : 0;
  let next = rows.next();
  for (; !next.done && row < ROWS; next = rows.next()) {
    row += 1;
    rowCells(next.value, left, right).forEach((cell, side) => {
      cell.style.gridRow = row;
      columns[side].append(cell);
    });
  }
  view.append(make("div", "pair", ...columns));
  if (next.done) return;
  const more = button("more", `show more: ${many(Math.max(left.length, right.length), "line")} in all`, () => {
    more.remove();
    pourRows(view, chained(next.value, rows), left, right, []);
  });
  view.append(more);
}

function* chained(first, rest) {
  yield first;
  yield* rest;
}

function rowCells([i, j], left, right) {
  const same = i >= 0 && j >= 0 && left[i] === right[j];
  const sides = same || i < 0 || j < 0 ? null : comparedWords(left[i], right[j]);
  return [i >= 0 ? left[i] : null, j >= 0 ? right[j] : null].map((line, side) => {
    const cell = make("div", line === null ? "line none" : "line");
    if (line !== null) pour(cell, sides ? sides[side] : [[line, !same]], FIRST);
    return cell;
  });
}
