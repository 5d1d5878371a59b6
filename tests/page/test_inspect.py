"""The page of `lam-vllm inspect` in a real browser: hostile text stays text, and everything can be reached and read."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright
from typer.testing import CliRunner

from lam_vllm.cli import app
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import find_run
from lam_vllm.evaluation.inspection.page import render_page
from lam_vllm.evaluation.inspection.view import Block, Inspection, inspect_run
from tests.page.runs import LIKE, NEW, SCRIPT, WORDS, chat, exact, inspect_guarded, inspect_paper

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
RECORDED = "mini_gemini3_verified/astropy__astropy-12907"
Scheme = Literal["light", "dark"]

HOSTILE = (
    "</script><script>window.ran = 1</script>",
    "<!--<script>window.ran = 1</script>-->",
    "</script and <!-- <script without their ends",
    "<img src=x onerror='window.ran = 1'>",
    "<svg/onload=alert(1)><iframe src=javascript:alert(1)></iframe>",
    "<style>* { display: none }</style><base href=https://evil.invalid/>",
    "<meta http-equiv=refresh content='0;url=https://evil.invalid/'><link rel=stylesheet href=//evil.invalid/x.css>",
    '"\'`\\" onfocus=alert(1) autofocus x=" ${window.ran = 1} __proto__ constructor',
    "line separator \u2028 paragraph separator \u2029 null \0 escape \x1b[31mred\x1b[0m",
    "right to left \u202egnihton\u202c isolate \u2067x\u2069 zero \u200b width \ufeff tag \U000e0041",
    "lone \ud800 surrogates \udfff and a whole pair \U0001f600",
)


@dataclass
class Shown:
    """A page in a tab, and what it did that no page may do."""

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def refuse(self, dialog: Dialog) -> None:
        self.errors.append(dialog.message)
        dialog.dismiss()

    def build_all(self) -> None:
        """Scroll on until the whole conversation is there."""
        while self.page.locator(".sentinel").count():
            self.page.evaluate("scrollTo(0, document.body.scrollHeight)")

    def values(self, selector: str, expression: str = "e.textContent") -> list[Any]:
        return list(self.page.eval_on_selector_all(selector, f"all => all.map((e) => {expression})"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self) -> str:
        """The number of the cut that has the focus."""
        return str(self.page.evaluate("document.activeElement.closest('.cut')?.dataset.number ?? ''"))


Show = Callable[..., Shown]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window. Its processes are ended by their ids, should closing leave any."""
    subprocess.run([ROOT / "scripts/install_debian.sh", "chromium"], check=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        yield browser
        processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        browser.close()
    for process in processes:
        name = Path(f"/proc/{process['id']}/comm")
        if name.exists() and name.read_text().startswith("chrom"):
            os.kill(process["id"], signal.SIGKILL)


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens an inspection, or a page's file, in a tab without network, and checks in the end what the page did."""
    opened: list[Shown] = []

    def open_page(what: Inspection | Path, *, width: int = 1280, scheme: Scheme = "light") -> Shown:
        path = what if isinstance(what, Path) else tmp_path / f"{len(opened)}.html"
        if isinstance(what, Inspection):
            path.write_text(render_page(what), encoding="ascii")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        shown = Shown(context.new_page(), path.as_uri())
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.on("dialog", shown.refuse)
        shown.page.on("pageerror", lambda error: shown.errors.append(str(error)))
        shown.page.on("console", lambda message: shown.errors.append(message.text))
        shown.page.goto(shown.url)
        opened.append(shown)
        return shown

    yield open_page
    for shown in opened:
        assert (shown.requests, shown.errors) == ([shown.url], [])
        shown.page.context.close()


@pytest.fixture(scope="module")
def three_layers(encoder: Encoder, count_tokens: Callable[[str], int]) -> Inspection:
    """A run with one cut of each layer; the first, a window like an earlier one, as if the encoder had found it."""
    inspection = inspect_guarded(encoder, count_tokens)
    start, read, turn, *others = inspection.turns
    entry = turn.entries[1]
    like = replace(inspection.cuts[0], decision=inspection.cuts[0].decision._replace(layer="l1"), distance=0.25)
    changed = replace(turn, entries=(turn.entries[0], replace(entry, blocks=(Block("text", (like,)),))))
    return replace(inspection, turns=(start, read, changed, *others))


@pytest.fixture(scope="module")
def recorded(count_tokens: Callable[[str], int]) -> Inspection:
    return inspect_run(find_run(CORPUS, RECORDED), exact(count_tokens), count_tokens)


def test_hostile_text_is_shown_and_does_nothing(show: Show) -> None:
    text = "".join(f"{line}\n" for line in HOSTILE)
    call = {"id": "c", "function": {"name": HOSTILE[0], "arguments": text}}
    run = chat(text, "new\n" + text, reasoning=text, tool_calls=[call], name=HOSTILE[3])
    shown = show(inspect_run(replace(run, id=text), exact(), len))
    shown.press("j", "o", "d", "1", "0", "t")
    assert shown.page.evaluate("window.ran") is None
    assert shown.values("script", "e.type") == ["application/json", ""]
    assert shown.page.locator("img, svg, iframe, base, link, main style").count() == 0
    marks = {"line": "U+2028", "null": "NUL", "right": "U+202E", "lone": "U+D800"}
    for place in (".observed .text", ".cut .column:first-child", ".reasoning, .is-reasoning .text", ".is-call .text"):
        seen = shown.page.locator(place).first.text_content() or ""
        assert [line for line in HOSTILE[:8] if line not in seen] == []
        assert [mark for mark in marks.values() if mark not in seen] == []
        assert not set("\u2028\u202e\u2067\u200b\0\x1b\ud800\udfff") & set(seen)
        assert "\U0001f600" in seen


def test_huge_texts_are_shown_a_piece_at_a_time(show: Show, three_layers: Inspection) -> None:
    turn, *others = three_layers.turns
    line, lines = "x" + "\U0001f600" * 500_000, "a line\n" * 1_000_000
    huge = replace(turn.entries[0], blocks=(Block("text", (line,)), Block("text", (lines,))))
    entries = (huge, *[replace(huge, blocks=(Block("text", ("small",)),))] * 2000)
    shown = show(replace(three_layers, turns=(replace(turn, entries=entries), *others)))
    assert shown.page.locator("*").count() < 5000
    texts = shown.page.locator(".text")
    assert len(texts.nth(0).text_content() or "") < 10_000
    texts.nth(0).locator(".more").click()
    assert shown.page.locator(".hidden").count() == 1, "no pair is cut in half; the list of signs holds one sign"
    more = texts.nth(1).locator(".more")
    assert more.text_content() == "show more: 999,984 lines, 6,999,888 characters left"
    more.click()
    assert more.text_content() == "show more: 998,984 lines, 6,992,888 characters left"


def test_a_cut_folds_by_click_and_by_key(show: Show, three_layers: Inspection) -> None:
    shown = show(three_layers)
    head = shown.page.locator(".cut.l1 .head")
    assert (head.get_attribute("aria-expanded"), shown.page.locator(".compare").count()) == ("false", 0)
    head.click()
    assert (head.get_attribute("aria-expanded"), shown.page.locator(".compare").count()) == ("true", 1)
    head.click()
    assert shown.page.locator(".compare").count() == 0
    shown.press("o")
    assert shown.page.locator(".compare").count() == 1
    shown.press("Enter")
    assert shown.page.locator(".compare").count() == 0


def test_an_unfolded_cut_tells_what_it_rests_on(show: Show, three_layers: Inspection) -> None:
    shown = show(three_layers)
    shown.press("j", "o")
    sides = shown.values(".cut.l1 .column", "[...e.querySelectorAll('.line')].map((line) => line.textContent)")
    assert sides == [[line.strip() for line in LIKE], [line.strip() for line in SCRIPT]]
    marked = shown.values(".cut.l1 .column:first-child mark")
    whole = [f"{word}.stop()" for word in ("alder", "birch", "cedar", "daphne", "elm")]
    assert marked == [*whole, "stop", "gorse", "stop"]
    facts = shown.page.locator(".cut.l1 .cut-facts").text_content() or ""
    assert "distance 0.250 of at most δ\u00a0=\u00a00.316" in facts and "7 new lines kept below" in facts
    assert shown.values(".cut.l1 .kept .text") == ["".join(NEW).removesuffix("\n")]
    shown.press("j", "j", "o")
    assert set(shown.values(".cut.l0 .column:first-child mark")) == {str(number) for number in range(11, 23)}
    assert "line numbers +10" in (shown.page.locator(".cut.l0 .cut-facts").text_content() or "")
    shown.page.locator(".cut.l0 .column .link").click()
    assert shown.page.evaluate("document.activeElement.id") == "result-4"


def test_a_short_name_is_a_note_at_the_top_of_its_listing(show: Show, three_layers: Inspection) -> None:
    shown = show(three_layers)
    block = shown.page.locator("#result-3 .block")
    assert block.locator("> *").first.get_attribute("class") == "cut alias"
    stub = block.locator(".stub").text_content()
    assert (stub, block.locator("button").count()) == ("[@1/ is /workspace/project/source/library/ below]", 0)


def test_keys_walk_over_cuts_and_turns(show: Show, three_layers: Inspection) -> None:
    shown = show(three_layers)
    walked = []
    for key in "jjjjkk":
        shown.press(key)
        walked.append(shown.focused())
    assert walked == ["1", "2", "3", "3", "2", "1"]
    assert shown.page.locator("#place").text_content() == "1 of 3"
    shown.press("t")
    assert shown.page.evaluate("document.activeElement.textContent") == "Turn 3"
    shown.press("T", "T")
    assert shown.page.evaluate("document.activeElement.textContent") == "Turn 1"
    shown.press("?")
    assert shown.page.locator("#keys").is_visible()
    shown.press("Escape", "j")
    assert not shown.page.locator("#keys").is_visible() and shown.focused() == "1"


def test_layers_can_be_hidden_by_click_and_by_key(show: Show, three_layers: Inspection) -> None:
    shown = show(three_layers)

    def visible() -> list[str]:
        return [layer for layer in ("l0", "l1", "alias") if shown.page.locator(f".cut.{layer}").is_visible()]

    assert visible() == ["l0", "l1", "alias"]
    shown.page.locator(".chip.l1").click()
    assert visible() == ["l0", "alias"] and shown.page.locator("#place").text_content() == "2 cuts"
    shown.press("1")
    assert visible() == ["alias"] and shown.values(".chip", "e.ariaPressed") == ["false", "false", "true"]
    shown.press("j")
    assert shown.focused() == "2"
    shown.press("0")
    assert visible() == ["l0", "l1", "alias"]


def test_both_layers_of_the_paper_are_shown(show: Show, encoder: Encoder, count_tokens: Callable[[str], int]) -> None:
    inspection = inspect_paper(encoder, count_tokens)
    shown = show(inspection)
    shown.press("j", "o", "j", "o", "j", "o")
    assert shown.values(".chip-count") == ["1", "2", "0"]
    facts = shown.values(".cut.l1 .distance")
    distances = [cut.distance for cut in inspection.cuts if cut.decision.layer == "l1"]
    assert facts == [f"distance {distance:.3f} of at most δ\u00a0=\u00a00.316" for distance in distances]
    assert shown.values(".cut.l1 mark") == ["6", "5", "46", "45"]
    assert shown.values(".cut.l0 .silent") == ["2 lines dropped without a trace"]
    assert shown.values(".cut.l0 .text") == ["a line\nwith more"]


CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => channels(colour).slice(0, 3).reduce((sum, value, place) => {
    const part = value / 255;
    return sum + [0.2126, 0.7152, 0.0722][place] * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0);
  const ground = (e) => {
    const colour = getComputedStyle(e).backgroundColor;
    return channels(colour)[3] === 0 && e.parentElement ? ground(e.parentElement) : colour;
  };
  const hasText = (e) => [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility() && hasText(e)).map((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => a - b);
    return [(b + 0.05) / (a + 0.05), e.tagName + "." + e.className];
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_in_both_themes(show: Show, three_layers: Inspection, scheme: Scheme) -> None:
    hidden = Block("text", ("\x1b[0m",))
    turn = three_layers.turns[0]
    marked = replace(turn, entries=(replace(turn.entries[0], blocks=(hidden,)),))
    shown = show(replace(three_layers, turns=(marked, *three_layers.turns[1:])), scheme=scheme)
    shown.press("j", "o", "j", "j", "o", "2", "?")
    grounds = []
    for _ in range(2):
        found = shown.page.evaluate(CONTRAST)
        assert len(found) > 100 and [name for ratio, name in found if ratio < 4.5] == []
        grounds.append(shown.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        shown.press("Escape", "d", "?")
    white, black = "rgb(255, 255, 255)", "rgb(21, 24, 29)"
    assert grounds == ([white, black] if scheme == "light" else [black, white])


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(
    show: Show, three_layers: Inspection, recorded: Inspection, width: int
) -> None:
    wide = "x" * 3000 + "\n" + "".join(f"{'very_long_name' * 30}.{word}\n" for word in WORDS)
    for inspection in (three_layers, recorded, inspect_run(chat(wide, wide), exact(), len)):
        shown = show(inspection, width=width)
        shown.build_all()
        shown.page.evaluate("document.querySelectorAll('button.head').forEach((head) => head.click())")
        shown.page.evaluate("document.querySelector('details').open = true")
        assert shown.page.evaluate("document.documentElement.scrollWidth") == width
        rights = shown.values("main *, .top *, .bar *", "e.getBoundingClientRect().right")
        assert max(rights) <= width


def test_on_a_phone_the_sides_stand_one_above_the_other(show: Show, three_layers: Inspection) -> None:
    for width, stacked in ((360, True), (1280, False)):
        shown = show(three_layers, width=width)
        shown.press("j", "o")
        original, representative = shown.values(".column .side-title", "e.getBoundingClientRect().top")
        assert (original < representative) == stacked


def test_a_recorded_run_is_shown_whole_with_the_totals_of_its_report(
    show: Show, recorded: Inspection, count_tokens: Callable[[str], int], tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    arguments = ["inspect", str(CORPUS), "--run", RECORDED, "--html", str(target)]
    done = CliRunner().invoke(app, [*arguments, "--tokenizer", str(ROOT / ".models/smollm2")])
    assert done.exit_code == 0, done.output
    shown = show(target)
    shown.build_all()
    compaction = exact(count_tokens).compact(find_run(CORPUS, RECORDED).messages)
    stubs = [decision.stub for decision in compaction.decisions]
    assert len(stubs) > 10 and shown.values(".cut .stub") == stubs
    assert shown.values(".cut", "e.dataset.number") == [str(number) for number in range(1, len(stubs) + 1)]
    removed, spent = sum(compaction.report.removed_tokens.values()), compaction.report.stub_tokens
    totals = shown.values("#totals div", "[e.dataset.total, e.querySelector('b').textContent]")
    expected = {"removed": removed, "stubs": spent, "net": removed - spent, "original": recorded.tokens.original}
    assert dict(totals) == {name: f"{value:,}" for name, value in expected.items()}
    for column, total in expected.items():
        cells = shown.values(f"#turns .{column}", "Number(e.textContent.replaceAll(',', '').replace('−', '-'))")
        assert sum(cells) == total and len(cells) == len(recorded.turns)
    assert f"net {removed - spent:,}" in " ".join(done.output.split())


def test_what_is_not_marked_is_the_same_on_both_sides(show: Show, three_layers: Inspection) -> None:
    """The law of a comparison, over pairs of texts that differ in every way."""
    words = "".join(WORDS)
    pairs = [(words[:size] + " " + words[size::3], words[size:] + " " + words[::2]) for size in range(2, 60, 3)]
    texts = ["\n".join(" ".join(pair[side][::step]) for pair in pairs for step in (1, 2, 5)) for side in (0, 1)]
    (cut,) = three_layers.cuts[:1]
    turn = three_layers.turns[2]
    different = replace(cut, original=texts[0], representative=texts[1] + "\nmore")
    entry = replace(turn.entries[1], blocks=(Block("text", (different,)),))
    shown = show(replace(three_layers, turns=(replace(turn, entries=(entry,)),)))
    shown.press("j", "o")
    sides = shown.values(
        ".column",
        "[...e.querySelectorAll('.line')].map((line) => [...line.childNodes].filter((n) => n.nodeType === 3)"
        ".map((n) => n.data).join('')).join('')",
    )
    whole = shown.values(".column", "[...e.querySelectorAll('.line:not(.none)')].map((l) => l.textContent).join('\\n')")
    assert sides[0] == sides[1] and len(sides[0]) > 500
    assert whole == [texts[0], texts[1] + "\nmore"]


def test_a_page_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "page.html"
    arguments = ["inspect", str(CORPUS), "--html", str(target), "--tokenizer", str(ROOT / ".models/smollm2")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and str(target) in done.output
