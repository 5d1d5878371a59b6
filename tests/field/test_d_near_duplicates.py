"""Group D: windows that an encoder finds near may mean different things, and no difference is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import yaml

from lam_vllm import Compaction, Compactor, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.profile import EncoderProfile
from lam_vllm.resources import resource
from lam_vllm.types import Embedding

from .agent import FOLDER, LINES, MODULE, OTHER, Make, agent, emitted, listing, numbered

TAIL = "\n".join(f"{name}: painted in spring and dry since then" for name in ("winch", "cleat", "buoy", "stern", "bow"))
PAIRS = {
    "a number": ("0 failed and 10 passed", "10 failed and 0 passed"),
    "a negation": ("The inner gate is open.", "The inner gate is not open."),
    "a status": ("deploy of the pilot service: success", "deploy of the pilot service: failure"),
    "a hash": ("HEAD is now at 3f9a1c77 Repair the winch", "HEAD is now at 8d02be15 Repair the winch"),
    "a line number": ("winch.py:118: error: rope is not defined", "winch.py:811: error: rope is not defined"),
    "a path": ("wrote /srv/pilot/a/config.toml", "wrote /srv/pilot/b/config.toml"),
    "a sign": ("tide: +3 at the inner gate", "tide: -3 at the inner gate"),
    "a letter case": ("export PILOT=on", "export pilot=on"),
    "an accent": ("the quay of Malaga", "the quay of Málaga"),
}
"""Two lines that hardly differ and do not say the same."""
LOG = [f"2026-03-01 12:{n:02}:07 INFO boat {n} told the office where it lies and went on" for n in range(14)]
SECTIONS = (
    "\n".join(f"def moor_{n}(ship):\n    return ship.rope[{n}]" for n in range(17)),
    "\n".join(f"Dear reader, on day {n} it rained and we sang old songs by the fire." for n in range(14)),
    "\n".join(f"{n * 7919 % 997},{n * 104729 % 991},{n * 1299709 % 983}" for n in range(26)),
    "\n".join(f"-rw-r--r-- 1 root root {n * 37} apps_{n}.html" for n in range(15)),
    "\n".join(f"SELECT name FROM berth WHERE id = {n} ORDER BY size" for n in range(20)),
)
"""Texts of five kinds, each about half a window of the packaged encoder."""


class AlwaysNear:
    """An encoder to which every window is near every other: what then stays is not the encoder's merit."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "always near", "always near", 2, 510, 0.95

    def __init__(self, encoder: Encoder) -> None:
        self.token_offsets = encoder.token_offsets

    def encode(self, text: str) -> Embedding:
        return np.array([1, 0], dtype=np.float32)


def parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def input_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "input_text", "text": text}]


every_form = pytest.mark.parametrize("form", [str, parts, input_parts])


def shown(compaction: Compaction, result: int) -> list[str]:
    """Lines of a tool result as rendered, whatever its form."""
    content = emitted(compaction)[result - 1]
    lines: list[str] = (content if isinstance(content, str) else content[0]["text"]).split("\n")
    return lines


def cosine(encoder: Encoder, one: str, other: str) -> float:
    return float(encoder.encode(one).astype(np.float64) @ encoder.encode(other).astype(np.float64))


@pytest.fixture(params=["exact", "guarded", "guarded, always near"])
def make_guarding(request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder) -> Make:
    """Builds a compactor of each profile that loses no line, also where the encoder sees no difference at all."""
    profile, _, forced = request.param.partition(", ")
    encoder: Encoder = AlwaysNear(remembering) if forced else remembering

    def make(**options: object) -> Compactor:
        config = make_config({"profile": profile, **options})
        return Compactor(config, count_tokens, None if profile == "exact" else encoder)

    return make


def test_f52_every_encoder_has_a_threshold_of_its_own_and_it_is_high() -> None:
    files = sorted((resource("configs") / "encoders").glob("*.yaml"))
    assert files
    for file in files:
        text = file.read_text()
        assert "threshold_cos:" in text, f"{file.name} leaves t to the default, which is another encoder's"
        assert EncoderProfile.model_validate(yaml.safe_load(text)).threshold_cos >= 0.95


def test_f52_of_windows_labelled_by_hand_the_alike_lie_above_the_threshold_and_the_unlike_below(
    remembering: Encoder,
) -> None:
    alike = [(MODULE, MODULE.replace("timeout=30)", "timeout=31)")), (OTHER, OTHER.replace("good", "best"))]
    unlike = [(one, other) for place, one in enumerate(SECTIONS) for other in SECTIONS[:place]]
    assert all(cosine(remembering, *pair) >= remembering.threshold_cos for pair in alike)
    assert all(cosine(remembering, *pair) < remembering.threshold_cos - 0.1 for pair in unlike)


def test_f52_the_threshold_that_applied_is_in_the_report(make_careful: Make, remembering: Encoder) -> None:
    guarded = make_careful().config.profile == "guarded"
    assert make_careful().config.threshold_cos == (remembering.threshold_cos if guarded else None)
    delta = make_careful(threshold_cos=0.98).compact(agent(MODULE)).report.delta
    assert delta == pytest.approx(0.2 if guarded else 0.0)


@pytest.mark.parametrize("name", PAIRS)
def test_f53_to_the_encoder_such_pairs_are_one_and_the_same(name: str, remembering: Encoder) -> None:
    one, other = (f"{OTHER}\n{line}\n{TAIL}" for line in PAIRS[name])
    assert cosine(remembering, one, other) >= remembering.threshold_cos


@every_form
def test_f53_lines_that_hardly_differ_are_both_readable_in_every_form(
    form: Callable[[str], Any], make_guarding: Make
) -> None:
    for before, after in PAIRS.values():
        texts = [f"{OTHER}\n{line}\n{TAIL}" for line in (before, after)]
        compaction = make_guarding().compact(agent(*map(form, texts)))
        assert emitted(compaction)[0] == form(texts[0])
        assert after in shown(compaction, 2)
        assert len(shown(compaction, 2)) <= 3


def test_f53_another_number_before_a_line_is_printed_as_what_is_added_to_it(make_guarding: Make) -> None:
    texts = [f"{OTHER}\n{number}: raise RopeError(rope)\n{TAIL}" for number in (118, 811)]
    (cut,) = make_guarding().compact(agent(*texts)).decisions
    assert cut.shift == 811 - 118
    assert ", numbers +693]" in cut.stub


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I moor a boat at the long quay in winter?", "How do I moor a boat at the long quay in summer?"),
        ("error: the berth 12 of the north quay is taken", "error: the berth 21 of the north quay is taken"),
        ('{"berth": 12, "taken": true, "by": "Ada"}', '{"berth": 12, "taken": false, "by": "Ada"}'),
        (
            "| ship | berth |\n|---|---|\n| Ada | 3 |\n| Bo | 4 |",
            "| ship | berth |\n|---|---|\n| Ada | 4 |\n| Bo | 3 |",
        ),
    ],
)
@every_form
def test_f55_what_is_only_near_in_meaning_is_whole(
    one: str, other: str, form: Callable[[str], Any], make_guarding: Make
) -> None:
    messages = agent(form(one), form(other))
    assert make_guarding(min_tokens=0).compact(messages).messages is messages


def test_f55_where_every_window_is_near_no_line_is_lost(count_tokens: Callable[[str], int], encoder: Encoder) -> None:
    compactor = Compactor(make_config({"profile": "guarded"}), count_tokens, AlwaysNear(encoder))
    results = [*SECTIONS, numbered(LINES), SECTIONS[2] + "\n" + TAIL, OTHER + "\n" + SECTIONS[1], MODULE]
    compaction = compactor.compact(agent(*results))
    assert compaction.changed
    readable = {line for result in range(1, len(results) + 1) for line in shown(compaction, result)}
    assert {line for result in results[:5] + results[6:8] for line in result.split("\n")} <= readable


@pytest.mark.parametrize("place", [0, 1, 6, 12, 13])
@every_form
def test_f56_the_one_line_that_differs_is_what_is_shown(
    place: int, form: Callable[[str], Any], make_guarding: Make
) -> None:
    edited = [line.replace("went on", "ran aground") if n == place else line for n, line in enumerate(LOG)]
    compaction = make_guarding().compact(agent(form("\n".join(LOG)), form("\n".join(edited))))
    assert edited[place] in shown(compaction, 2)
    assert len(shown(compaction, 2)) <= 4


def test_f56_where_every_line_has_another_timestamp_every_line_is_shown(make_guarding: Make) -> None:
    later = [line.replace(" 12:", " 13:") for line in LOG]
    messages = agent("\n".join(LOG), "\n".join(later))
    assert make_guarding().compact(messages).messages is messages


def test_f56_a_timestamp_above_text_that_repeats_is_shown(make_guarding: Make) -> None:
    texts = [f"built at 2026-03-01T12:{minute}:07Z\n{MODULE}\ntook 4.{minute} s" for minute in (10, 11)]
    compaction = make_guarding().compact(agent(*texts))
    assert shown(compaction, 2)[0] == "built at 2026-03-01T12:11:07Z"
    assert shown(compaction, 2)[-1] == "took 4.11 s"
    assert len(shown(compaction, 2)) == 3


@pytest.mark.parametrize("aliases", [False, True])
def test_f56_a_new_name_in_a_listing_is_shown(aliases: bool, make_guarding: Make) -> None:
    before = listing("berth", "crew", "tide")
    after = before.replace(f"{FOLDER}crew/forms.py", f"{FOLDER}crew/fines.py\n{FOLDER}crew/forms.py")
    compaction = make_guarding(directory_aliases=aliases).compact(agent(before, after))
    text = "\n".join(shown(compaction, 2))
    assert "crew/fines.py" in text
    assert "berth/forms.py" not in text
    assert ("@1/" in "\n".join(shown(compaction, 1))) == aliases


def test_f57_text_at_another_offset_is_found_though_no_window_is_near(make_careful: Make, remembering: Encoder) -> None:
    first = "\n".join(SECTIONS[:4])
    moved = "\n".join([SECTIONS[4], *SECTIONS[:4]])
    halves = [cosine(remembering, "\n".join(SECTIONS[n : n + 2]), "\n".join(SECTIONS[n + 1 : n + 3])) for n in range(3)]
    assert max(halves) < remembering.threshold_cos
    compaction = make_careful().compact(agent(first, moved))
    assert shown(compaction, 2)[:-1] == SECTIONS[4].split("\n")
    assert len(compaction.decisions) == 1


def test_f57_the_papers_windows_do_not_find_it(count_tokens: Callable[[str], int], remembering: Encoder) -> None:
    compactor = Compactor(make_config({"profile": "paper"}), count_tokens, remembering)
    compaction = compactor.compact(agent("\n".join(SECTIONS[:4]), "\n".join([SECTIONS[4], *SECTIONS[:4]])))
    assert compaction.report.work.new_windows >= 4
    assert compaction.report.removed_tokens["l1"] == 0


@pytest.mark.parametrize("profile", ["guarded", "paper"])
def test_f58_decisions_do_not_depend_on_threads_or_on_what_arrives_together(
    profile: str, count_tokens: Callable[[str], int], encoder: Encoder
) -> None:
    import torch

    messages = agent(OTHER, "\n".join(LOG), OTHER.replace("good", "best"), "\n".join(LOG[3:]), MODULE)

    def decided(steps: Sequence[int]) -> tuple[Any, ...]:
        compactor = Compactor(make_config({"profile": profile}), count_tokens, encoder)
        for step in steps:
            compaction = compactor.compact(messages[:step])
        return compaction.messages, compaction.decisions, compaction.report.delta_hat

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = decided(range(1, len(messages) + 1))
        torch.set_num_threads(2)
        together = decided([len(messages)])
    finally:
        torch.set_num_threads(threads)
    assert alone == together
    assert alone[1]
    assert profile == "guarded" or alone[2] > 0


def test_f60_two_tokens_past_the_models_limit_are_seen(make: Make, encoder: Encoder) -> None:
    full = "\n".join("the old boat lies at the long quay of stone" for _ in range(51))
    assert len(encoder.token_offsets(full)) == encoder.window_tokens == 510
    texts = [f"{full}\nblue anchor", f"{full}\ngreen banana"]
    assert "green banana" in shown(make().compact(agent(*texts)), 2)[-1]


def test_f60_a_window_of_another_conversation_is_never_near(make: Make) -> None:
    compactor = make()
    compactor.compact(agent(MODULE, OTHER))
    messages = [{"role": "user", "content": "Another one."}, *agent(MODULE.replace("timeout=30)", "timeout=31)"))]
    assert compactor.compact(messages).messages is messages
