"""Group D, guards: near texts that differ in a number, a negation, a status word, a hash or a path keep it visible."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lam_vllm import Compactor, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import read_runs

from .agent import LINES, agent, emitted, numbered

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "bench"))  # the benchmarks import one another by name, as scripts in one folder do

from guard_pairs import (  # noqa: E402
    TOKEN,
    Pair,
    SameVector,
    guarded_by_force,
    outcome,
    pairs,
    replaced,
    sample_windows,
)

WINDOWS, POSITIONS = 200, 20
DIFFERENCES = {
    "number": ("ran 412 tests in the harbour suite: 0 failed", "ran 412 tests in the harbour suite: 10 failed"),
    "negation": ("the anchor is safe to raise before noon", "the anchor is not safe to raise before noon"),
    "hash": ("HEAD is now at 3f9c2d17b0e4 in the main line", "HEAD is now at 3f9c2d17b0e5 in the main line"),
    "line number": ('  File "harbour.py", line 118, in moor', '  File "harbour.py", line 181, in moor'),
    "path": ("reading /srv/harbour/etc/ropes.toml again", "reading /srv/harbour/opt/ropes.toml again"),
    "status": ("tests/test_anchor.py::test_chain PASSED", "tests/test_anchor.py::test_chain FAILED"),
    "truth": ("    strict = load(settings, default=True)", "    strict = load(settings, default=False)"),
    "sign": ("balance of the port office: 1200.50", "balance of the port office: -1200.50"),
    "case": ("export HARBOUR_MODE=Live for this shell", "export HARBOUR_MODE=live for this shell"),
    "end": ("the crane may lift the container", "the crane may lift the container."),
    "space": ("    return the_rope", "\treturn the_rope"),
}


@pytest.fixture(params=["forced", "minilm"])
def guarded(request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder) -> Compactor:
    """`guarded` with every match forced, and with the real encoder."""
    encoder = SameVector() if request.param == "forced" else remembering
    return Compactor(make_config({"profile": "guarded"}), count_tokens, encoder)


def among_others(line: str, view: Callable[[list[str]], str]) -> str:
    return view([*LINES[:9], line, *LINES[9:]])


def over_and_over(line: str, view: Callable[[list[str]], str]) -> str:
    """The line, told apart by what follows it, after every second other one: no run is worth a reference of its own."""
    return view([text for n in range(12) for text in (f"entry {n} of the log", f"{line} ({n})" if n % 3 == 0 else "-")])


@pytest.mark.parametrize("view", ["\n".join, numbered])
@pytest.mark.parametrize("place", [among_others, over_and_over])
@pytest.mark.parametrize("kind", DIFFERENCES)
def test_f53_f55_the_line_that_differs_stands_in_the_second_text(
    guarded: Compactor,
    kind: str,
    place: Callable[[str, Callable[[list[str]], str]], str],
    view: Callable[[list[str]], str],
) -> None:
    for old, new in (DIFFERENCES[kind], DIFFERENCES[kind][::-1]):
        first, second = place(old, view), place(new, view)
        shown = emitted(guarded.compact(agent(first, second)))[1].split("\n")
        changed = [line for line in second.split("\n") if line not in first.split("\n")]
        assert len(changed) in (1, 4)
        assert set(changed) <= set(shown)
        if place is among_others:
            assert len(shown) < len(second.split("\n")) / 2


def test_f53_texts_that_differ_in_every_line_both_stay_whole(guarded: Compactor) -> None:
    texts = ["\n".join(f"check {n}: {failed} failed of {n + 40}" for n in range(20)) for failed in (0, 10)]
    assert emitted(guarded.compact(agent(*texts))) == texts


def test_f55_texts_about_something_else_both_stay_whole_when_they_are_taken_for_near(
    count_tokens: Callable[[str], int],
) -> None:
    texts = ["\n".join(LINES), "\n".join(f"{n} ships lie in the harbour of port {n * 7}" for n in range(20))]
    assert emitted(guarded_by_force(count_tokens).compact(agent(*texts))) == texts


@pytest.fixture(scope="module")
def windows(encoder: Encoder) -> list[str]:
    return sample_windows(list(read_runs(ROOT / "tests/data/corpus/trajectories.jsonl.xz")), encoder, WINDOWS)


def test_f53_f55_one_token_of_a_real_window_replaced_is_never_lost(
    windows: list[str], count_tokens: Callable[[str], int]
) -> None:
    assert len(windows) == WINDOWS
    chosen = random.Random(0)
    compactor = guarded_by_force(count_tokens)
    found: Counter[str] = Counter()
    shortened = 0
    for window in windows:
        for pair in pairs(window, chosen, POSITIONS):
            what, shorter = outcome(pair, compactor)
            assert what != "lost", pair
            found[what] += 1
            shortened += shorter
    assert found.total() == WINDOWS * POSITIONS
    assert found["verbatim"] > 0.98 * found.total()
    assert shortened > 0.95 * found.total()


@pytest.mark.parametrize(
    ("text", "kind", "new"),
    [
        ("10 failed", "number", r"\d\d"),
        ("test PASSED", "status", "FAILED"),
        ("it is", "negation", "is not"),
        ("do not", "negation", "now"),
        ("at 3f9c2d17", "hash", "[0-9a-f]{8}"),
        ("/srv/port", "path", "[a-z]{4}"),
        ("a name", "word", "[a-z]{4}"),
        ("x = [", "mark", r"[^\w\s\[]"),
    ],
)
def test_a_token_is_replaced_by_another_of_its_kind(text: str, kind: str, new: str) -> None:
    start, end = (list(TOKEN.finditer(text))[0 if kind == "number" else -1]).span()
    got, token = replaced(text, start, end, random.Random(1))
    assert got == kind and token != text[start:end]
    assert TOKEN.fullmatch(token) or kind == "negation"
    assert re.fullmatch(new, token)


def test_a_window_that_the_paper_takes_whole_is_called_lost(count_tokens: Callable[[str], int]) -> None:
    text = "\n".join(LINES)
    pair = Pair("number", text, text.replace("value_9", "value_7"), text.index("value_9"))
    compactor = Compactor(make_config({"profile": "paper"}), count_tokens, SameVector())
    assert outcome(pair, compactor) == ("lost", True)
