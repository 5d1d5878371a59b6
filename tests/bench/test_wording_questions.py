"""The questions of bench/stub_wording.py, whose answers stand behind a reference and nowhere else; its statistics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lam_vllm import Compaction, Compactor, CompactorConfig, reconstruct
from lam_vllm.evaluation.corpus import Run, read_runs
from lam_vllm.stubs import Stub
from lam_vllm.types import Message

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
sys.path.append(str(ROOT / "bench"))  # the benchmarks import one another by name, as scripts in one folder do

from wording_aliases import ALIAS_WORDINGS, alias_questions, realiased  # noqa: E402
from wording_questions import Question, in_fixed_order, occurrences, stub_questions  # noqa: E402
from wording_table import sign_test, wilson  # noqa: E402
from wordings import WORDINGS, Reference, reworded  # noqa: E402

RUNS = 40
Counter = Callable[[str], int]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return in_fixed_order(list(read_runs(CORPUS)))[:RUNS]


@pytest.fixture(scope="module")
def questions(runs: list[Run], count_tokens: Counter) -> list[Question]:
    return stub_questions(runs, count_tokens)


@pytest.fixture(scope="module")
def paths(runs: list[Run], count_tokens: Counter) -> list[Question]:
    return alias_questions(runs, count_tokens)


def compacted(question: Question, count_tokens: Counter) -> Compaction:
    config = CompactorConfig(profile="exact", directory_aliases=question.kind == "alias")
    return Compactor(config, count_tokens).compact(question.messages)


def standing(answer: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Tool result, counted from 1, and line of every place; what is no tool result counts as result 0."""
    places, result = [], 0
    for message in messages:
        result += message["role"] == "tool"
        for number, line in enumerate(str(message["content"]).split("\n"), start=1):
            places += [(result * (message["role"] == "tool"), number)] * occurrences(answer, line)
    return places


def test_every_answer_stands_in_one_place_of_the_prompt_which_a_reference_of_the_last_result_names(
    questions: list[Question], count_tokens: Counter
) -> None:
    assert len(questions) >= 40
    for question in questions:
        compaction = compacted(question, count_tokens)
        messages = [*compaction.messages[:-1], {"role": "user", "content": question.messages[-1]["content"]}]
        messages.append({"role": "assistant", "content": question.begun})
        ((result, line),) = standing(question.answer, messages)
        last = sum(message["role"] == "tool" for message in messages)
        named = [one for one in compaction.decisions if one.result == last and one.target_result == result]
        assert any(
            one.unit == "part" or one.target_lines is None or one.target_lines[0] <= line <= one.target_lines[1]
            for one in named
        ), question.id


def test_every_answer_is_gone_from_a_place_of_the_last_result_and_can_be_put_back(
    questions: list[Question], count_tokens: Counter
) -> None:
    for question in questions:
        compaction = compacted(question, count_tokens)
        printed, emitted = (messages[-2]["content"] for messages in (question.messages, compaction.messages))
        assert occurrences(question.answer, printed) > occurrences(question.answer, emitted), question.id
        assert reconstruct(compaction.messages) == list(question.messages)


def test_no_wording_tells_the_answer_and_the_first_is_the_plugins(
    questions: list[Question], count_tokens: Counter
) -> None:
    for question in questions:
        compaction = compacted(question, count_tokens)
        read = {name: reworded(question.messages, compaction, wording) for name, wording in WORDINGS.items()}
        assert read["short"] == list(compaction.messages)
        assert {name: len(standing(question.answer, messages)) for name, messages in read.items()} == dict.fromkeys(
            WORDINGS, 1
        )


def test_every_kind_of_reference_and_every_source_is_asked_about(questions: list[Question]) -> None:
    assert {question.kind for question in questions} >= {"result", "range", "same_result", "next", "above", "shifted"}
    assert len({question.source for question in questions}) == 5
    assert len({question.answer for question in questions}) == len(questions)


def test_a_path_that_is_asked_for_is_printed_with_a_short_name_in_every_wording(
    paths: list[Question], count_tokens: Counter
) -> None:
    assert len(paths) >= 20
    for question in paths:
        compaction = compacted(question, count_tokens)
        for name, wording in ALIAS_WORDINGS.items():
            messages = realiased(compaction.messages, wording)
            assert not standing(question.answer, messages), (name, question.id)
        assert realiased(compaction.messages, ALIAS_WORDINGS["is ... below"]) == list(compaction.messages)
        assert standing(question.answer, question.messages)
        assert not occurrences(question.answer, question.begun)


@pytest.mark.parametrize(
    ("stub", "texts"),
    [
        (
            Stub("range", 3, 4, 50, shift=2, note=True),
            {
                "bare": "[lines 4-50 of result 3 repeat, numbers +2]",
                "quoted": "[lines 4-50 of result 3 repeat, numbers +2, from «def connect(»]",
                "named": "[lines 4-50 of result 3 (which begins «import socket») repeat, numbers +2]",
                "unchanged": "[unchanged: see lines 4-50 of result 3, numbers +2]",
                "long": "[same as lines 4-50 of tool result 3 above, numbers +2]",
            },
        ),
        (Stub("next", many=47), {"long": "[its next 47 lines are the same]", "named": "[47 lines repeat]"}),
        (Stub("repeat", many=1, times=1), {"long": "[the line above, once more]"}),
        (Stub("result", 12), {"long": "[same as tool result 12 above]", "unchanged": "[unchanged: see result 12]"}),
    ],
)
def test_a_reference_in_other_words(stub: Stub, texts: dict[str, str]) -> None:
    reference = Reference(stub, "def connect(", "import socket")
    assert {name: WORDINGS[name](reference) for name in texts} == texts


def test_short_names_in_other_words() -> None:
    messages = [{"role": "tool", "content": "[@1/ is /a/b/ below]\n@1/x.py\n/c/@1/y.py"}]
    (printed,) = realiased(messages, ALIAS_WORDINGS["~1/"])
    assert printed["content"] == "[~1/ is /a/b/ below]\n~1/x.py\n/c/@1/y.py"


def test_the_interval_and_the_test_are_those_of_the_books() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, table I, method 3
    assert sign_test(0, 0) == 1
    assert sign_test(1, 9) == pytest.approx(2 * 11 / 1024)
