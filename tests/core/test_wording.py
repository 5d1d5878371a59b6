"""Golden bytes: what a model reads in place of repeated text. A changed byte needs a new algorithm number."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lam_vllm import Compactor, CompactorConfig, look_up, reconstruct
from lam_vllm.stubs import NOTE, Stub, escape, format_stub, holds_stub, parse_stub, unescape

FILE = [f"{n}: statement number {n} of the module assigns value_{n}" for n in range(10, 22)]


def emitted(count_tokens: Callable[[str], int], *outputs: str) -> list[str]:
    messages = [{"role": "tool", "content": output} for output in outputs]
    compaction = Compactor(CompactorConfig(profile="exact"), count_tokens).compact(messages)
    assert reconstruct(compaction.messages) == messages
    return [message["content"] for message in compaction.messages]


def test_a_whole_result_again_is_named_by_its_ordinal(count_tokens: Callable[[str], int]) -> None:
    text = "\n".join(FILE)
    assert emitted(count_tokens, text, text, text)[1:] == ["[result 1 repeats]" + NOTE, "[result 1 repeats]"]


def test_a_range_names_result_and_printed_lines_and_goes_on_from_there(count_tokens: Callable[[str], int]) -> None:
    second = "\n".join([*FILE[2:6], "a line that was changed here", *FILE[7:10], "end"])
    assert emitted(count_tokens, "\n".join(FILE), second)[1] == "\n".join(
        ["[lines 3-6 of result 1 repeat]" + NOTE, "a line that was changed here", "[3 lines repeat]", "end"]
    )


def test_a_second_range_of_the_same_result_does_not_name_it_again(count_tokens: Callable[[str], int]) -> None:
    second = "\n".join([*FILE[6:9], "between", *FILE[0:3], "end"])
    assert emitted(count_tokens, "\n".join(FILE), second)[1] == "\n".join(
        ["[lines 7-9 of result 1 repeat]" + NOTE, "between", "[lines 1-3 repeat]", "end"]
    )


def test_shifted_line_numbers_are_printed_as_their_shift(count_tokens: Callable[[str], int]) -> None:
    first = [f"{n:6}\tthe same statement number {n - 97} again" for n in range(97, 104)]
    second = ["new first line", *(line.replace(f"{n:6}", f"{n + 3:6}", 1) for n, line in enumerate(first, 97))]
    assert emitted(count_tokens, "\n".join(first), "\n".join(second))[1] == "\n".join(
        ["new first line", "[lines 1-7 of result 1 repeat, numbers +3]" + NOTE]
    )


def test_repeats_inside_one_result_count_from_above(count_tokens: Callable[[str], int]) -> None:
    block = ["warning: the configuration file is deprecated", "warning: please move it to the new folder"]
    assert emitted(count_tokens, "\n".join(block * 6)) == ["\n".join([*block, "[2 lines above repeat 5 times]" + NOTE])]
    far = [*FILE[:4], "between", *FILE[:4]]
    assert emitted(count_tokens, "\n".join(far)) == [
        "\n".join([*FILE[:4], "between", "[lines 1-4 above repeat]" + NOTE])
    ]


def test_parts_of_a_long_line_are_quoted(count_tokens: Callable[[str], int]) -> None:
    address = '"address1": "281 Spruce Street", "address2": "Suite 942", "city": "San Diego", "country": "USA"'
    first = '{"name": {"first_name": "Omar", "last_name": "Davis"}, ' + address + ', "zip": "92164", "orders": 12}'
    second = '{"user": "another_person_4711", "age": 44, ' + address + ', "zip": "10001", "membership": "gold"}'
    first, second = first * 15, second * 15
    text = emitted(count_tokens, first, second)[1]
    assert text.split("\n")[:3] == [
        '{"user": "another_person_4711", "age": 44, ',
        '[parts 6-9 of result 1 repeat, from «"address1": »]',
        '"zip": "10001", "membership": "gold"}{"user": "another_person_4711", "age": 44, ',
    ]


@pytest.mark.parametrize(
    ("document", "old", "new"),
    [
        ("".join(f"<name>node {n}</name><chain><hop>{7 * n}</hop></chain>" for n in range(30)), "node 17<", "node 71<"),
        (json.dumps([{"id": n, "name": f"node {n}"} for n in range(40)], separators=(",", ":")), "node 17", "node 71"),
    ],
    ids=["xml", "json without spaces"],
)
def test_one_changed_value_of_a_document_in_one_line_is_all_that_stays(
    count_tokens: Callable[[str], int], document: str, old: str, new: str
) -> None:
    text = emitted(count_tokens, document, document.replace(old, new))[1]
    assert new in text
    assert count_tokens(text) < count_tokens(document) / 5


def test_a_line_of_a_result_can_be_looked_up_with_references_written_out(count_tokens: Callable[[str], int]) -> None:
    messages = [
        {"role": "tool", "content": "\n".join(FILE)},
        {"role": "tool", "content": "\n".join(["new", *FILE[4:9]])},
    ]
    compacted = Compactor(CompactorConfig(profile="exact"), count_tokens).compact(messages).messages
    assert look_up(compacted, 2, 2, 2) == "\n".join(FILE[4:9])
    assert look_up(compacted, 1, 1, 2) == "\n".join(FILE[:2])


EVERY_KIND = [
    (Stub("result", 3), "[result 3 repeats]"),
    (Stub("range", 3, 4, 50, shift=-3), "[lines 4-50 of result 3 repeat, numbers -3]"),
    (Stub("range", 3, 4, 4), "[line 4 of result 3 repeats]"),
    (Stub("same_result", 0, 4, 5), "[lines 4-5 repeat]"),
    (Stub("next", many=1), "[1 line repeats]"),
    (Stub("next", many=7, shift=2), "[7 lines repeat, numbers +2]"),
    (Stub("above", 0, 1, 2), "[lines 1-2 above repeat]"),
    (Stub("repeat", many=1, times=5), "[line above repeats 5 times]"),
    (Stub("repeat", many=3, times=2, shift=3), "[3 lines above repeat 2 times, numbers +3]"),
    (Stub("like", 2, 1, 9), "[like lines 1-9 of result 2]"),
    (Stub("like", 2, 1, 9, 1), "[like lines 1-9 of result 2, with the line below]"),
    (Stub("like", 2, 1, 9, gone=((3, 3),)), "[like lines 1-9 of result 2, without line 3]"),
    (
        Stub("like", 2, 1, 9, 4, shift=3, gone=((3, 3), (5, 7))),
        "[like lines 1-9 of result 2, without lines 3, 5-7, with the 4 lines below, numbers +3]",
    ),
    (Stub("window", 3, 2, 2), "[like window 2 of result 3]"),
    (Stub("range", 3, 4, 9, unit="part", excerpt='"a[b": '), '[parts 4-9 of result 3 repeat, from «"a[b": »]'),
]


@pytest.mark.parametrize(("stub", "text"), EVERY_KIND, ids=[text for _, text in EVERY_KIND])
def test_every_stub_is_written_and_read_back(stub: Stub, text: str) -> None:
    assert format_stub(stub) == text
    assert parse_stub(text) == stub
    assert parse_stub(text + NOTE) is not None
    assert parse_stub(" " + text) is None
    assert parse_stub(text + "x") is None


@pytest.mark.parametrize("text", ["x [result 1 repeats] y", "\\[1 line repeats]", "\\\\a\n[lines 1-2 above repeat]"])
def test_input_that_holds_a_stub_is_marked_and_the_mark_can_be_taken_away(text: str) -> None:
    assert holds_stub(text)
    assert escape(text) == "\\" + text
    assert unescape("\\" + text) == text


@pytest.mark.parametrize("text", ["plain", "[result 0 repeats]", "[lines 4 repeat", "repeat [like this]"])
def test_other_text_is_not_taken_for_a_stub(text: str) -> None:
    assert not holds_stub(text)
    assert escape(text) is None
