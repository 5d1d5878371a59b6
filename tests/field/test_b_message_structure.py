"""Group B: only text of tool results changes; what messages there are, and how they hang together, does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lam_vllm import Compactor, make_config

from .agent import MODULE, OTHER, Make, agent, emitted, listing

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk" * 40
MEDIA = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
    {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}", "detail": "auto"},
    {"type": "input_audio", "input_audio": {"data": IMAGE, "format": "wav"}},
    {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{IMAGE}"}},
]
UNKNOWN = [
    {"type": "search_result", "title": "A module", "source": "s", "content": [{"type": "text", "text": MODULE}]},
    {"type": "document", "text": MODULE},
    {"type": "tool_reference", "name": "read"},
    {"type": "thinking", "thinking": MODULE, "text": MODULE},
    {"type": "refusal", "refusal": MODULE},
    {"type": "input_file", "filename": "module.py", "file_data": IMAGE},
    {"text": MODULE},
]


def text_part(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


def skeleton(messages: list[Any]) -> list[Any]:
    """Everything of the messages but the content of tool results."""
    return [
        {**message, "content": type(message["content"])} if message["role"] == "tool" else message
        for message in messages
    ]


def test_f18_identical_neighbouring_results_stay_messages_of_their_own(make: Make) -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in range(3)]
    messages: list[Any] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    messages += [{"role": "tool", "tool_call_id": f"c{n}", "content": MODULE} for n in range(3)]
    compaction = make().compact(messages)
    assert skeleton(compaction.messages) == skeleton(messages)
    assert emitted(compaction)[0] == MODULE
    assert emitted(compaction)[1] != MODULE != emitted(compaction)[2]


def test_f19_every_call_keeps_its_result_and_an_orphan_stays_one(make: Make) -> None:
    messages = [*agent(MODULE, OTHER, MODULE), {"role": "tool", "tool_call_id": "nobody_called", "content": MODULE}]
    messages.append({"role": "function", "name": "old_style", "content": MODULE})
    compaction = make().compact(messages)
    assert [{**message, "content": ""} for message in compaction.messages] == [{**m, "content": ""} for m in messages]
    assert {cut.message for cut in compaction.decisions} == {7, 8, 9}


def test_f20_a_history_cut_between_a_call_and_its_result_keeps_its_pairs(make: Make) -> None:
    messages = agent(MODULE, OTHER, MODULE, OTHER)
    for start in range(len(messages)):
        part = messages[start:]
        assert skeleton(make().compact(part).messages) == skeleton(part)


def test_f21_custom_tool_results_of_the_responses_api_are_shortened_like_others(make: Make) -> None:
    call = {"type": "function", "id": "c1", "function": {"name": "patch", "arguments": '{"input": "*** Begin"}'}}
    messages: list[Any] = [
        {"role": "user", "content": [text_part("go", "input_text")]},
        {"role": "assistant", "reasoning": "First I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": MODULE},
        {"role": "assistant", "tool_calls": [{**call, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c2", "content": [text_part(MODULE, "input_text"), *MEDIA]},
        {"role": "tool", "tool_call_id": "c3", "content": None},
    ]
    compacted = make().compact(messages).messages
    assert compacted[:4] == messages[:4]
    assert 0 < len(compacted[4]["content"][0]["text"]) < len(MODULE) / 4
    assert compacted[4]["content"][1:] == MEDIA
    assert compacted[5] is messages[5]


def test_f23_no_content_becomes_empty_and_no_list_of_calls_appears_or_goes(make: Make) -> None:
    messages = agent(MODULE, MODULE, [text_part(MODULE)], "\n".join(["tick"] * 60), "\n\n" + MODULE + "\n\n")
    messages[4]["tool_calls"] = []
    del messages[6]["tool_calls"]
    compacted = make().compact(messages).messages
    assert [message.get("tool_calls") for message in compacted] == [message.get("tool_calls") for message in messages]
    contents = [message["content"] for message in compacted]
    assert all(content.strip() for content in contents if isinstance(content, str))
    assert [part["text"].strip() != "" for part in contents[7]] == [True]


def test_f25_every_text_part_is_shortened_not_only_the_first(make: Make) -> None:
    parts = [text_part(MODULE), text_part(OTHER), text_part(MODULE)]
    contents = emitted(make().compact(agent(parts, copy.deepcopy(parts))))
    assert [part["text"] for part in contents[0][:2]] == [MODULE, OTHER]
    short = [contents[0][2], *contents[1]]
    assert all(
        0 < len(part["text"]) < len(given["text"]) for part, given in zip(short, [parts[2], *parts], strict=True)
    )


def test_f26_a_string_stays_a_string_and_a_list_a_list_and_each_can_repeat_the_other(make: Make) -> None:
    contents = emitted(make().compact(agent(MODULE, [text_part(MODULE)], MODULE, [text_part(OTHER)], OTHER)))
    assert [type(content) for content in contents] == [str, list, str, list, str]
    assert contents[1] == [text_part(contents[1][0]["text"])]
    assert all(len(text) < len(MODULE) / 4 for text in (contents[1][0]["text"], contents[2]))
    assert len(contents[4]) < len(OTHER)


def test_f27_images_sound_and_films_pass_as_they_are(make: Make) -> None:
    messages = agent([*MEDIA, text_part(MODULE)], copy.deepcopy([text_part(MODULE), *MEDIA]), copy.deepcopy(MEDIA))
    compaction = make().compact(messages)
    contents = emitted(compaction)
    assert contents[0] is messages[3]["content"]
    assert all(kept is given for kept, given in zip(contents[1][1:], messages[5]["content"][1:], strict=True))
    assert contents[2] is messages[7]["content"]
    assert [cut.message for cut in compaction.decisions] == [5]


def test_f27_no_reference_reaches_over_an_image(make: Make) -> None:
    halves = MODULE.split("\n")
    split = [text_part("\n".join(halves[:12])), MEDIA[0], text_part("\n".join(halves[12:]))]
    compaction = make().compact(agent(split, MODULE))
    spans = [cut.target_lines for cut in compaction.decisions]
    assert spans
    assert all(span is None or span[1] - span[0] < 12 for span in spans)
    assert emitted(compaction)[0] is split


def test_f27_the_tokenizer_never_sees_an_image(count_tokens: Callable[[str], int]) -> None:
    counted: list[str] = []

    def watched(text: str) -> int:
        counted.append(text)
        return count_tokens(text)

    config = make_config({"profile": "exact", "max_reference_distance_tokens": 100_000})
    Compactor(config, watched).compact(agent([*MEDIA, text_part(MODULE)], [text_part(MODULE), *MEDIA]))
    assert counted
    assert not any(IMAGE in text for text in counted)


def test_f28_blocks_of_other_types_pass_untouched_even_where_they_hold_repeated_text(make: Make) -> None:
    messages = agent(MODULE, UNKNOWN, [*copy.deepcopy(UNKNOWN), "a bare string", None, 7])
    compaction = make().compact(messages)
    assert compaction.messages is messages
    assert compaction.report.reasons["no_repeat"] == 3


def test_f30_the_same_result_comes_out_the_same_from_every_api(make: Make) -> None:
    def second(content: Any) -> Any:
        return emitted(make().compact(agent(MODULE, content)))[1]

    chat = second(MODULE)
    assert len(chat) < len(MODULE) / 4
    assert second([text_part(MODULE)]) == [text_part(chat)]
    assert second([text_part(MODULE, "input_text")]) == [text_part(chat, "input_text")]
    assert second([text_part(MODULE, "output_text")]) == [text_part(chat, "output_text")]


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_f30_short_names_of_directories_come_out_the_same_from_every_api(make_careful: Make, kind: str) -> None:
    first, second = listing("berth", "crew", "tide"), listing("ant", "bee", "cod", folder="/opt/pilot/made/by/hand/")
    strings = emitted(make_careful(directory_aliases=True).compact(agent(first, second)))
    assert [text.split("\n")[1] for text in strings] == ["@1/berth/apps.py", "@1/ant/apps.py"]
    parts = [text_part(first, kind), *MEDIA, text_part(second, kind)]
    (content,) = emitted(make_careful(directory_aliases=True).compact(agent(parts)))
    assert content == [text_part(strings[0], kind), *MEDIA, text_part(strings[1], kind)]


@pytest.mark.parametrize("content", ["", None, [], " ", "\n", " \n\t\r\n" * 400, [text_part("")], [text_part(" \n")]])
def test_f31_nothing_to_read_comes_back_as_it_was(make: Make, content: Any) -> None:
    messages = agent(content, MODULE, content, MODULE, content)
    contents = emitted(make().compact(messages))
    assert [contents[0], contents[2], contents[4]] == [content] * 3
    assert len(contents[3]) < len(MODULE) / 4


def test_f31_no_messages_and_a_result_without_content_come_back_as_they_were(make: Make) -> None:
    assert make().compact([]).messages == []
    bare = [{"role": "tool", "tool_call_id": "c1"}, {"role": "tool", "tool_call_id": "c2"}]
    assert make().compact(bare).messages == bare


def test_f31_a_result_of_many_windows_comes_back(make: Make) -> None:
    long = "\n".join(f"row {n}: {n * 7919 % 10007} of {n * 104729 % 15013}" for n in range(300))
    contents = emitted(make().compact(agent(long, long)))
    assert contents[0].startswith("row 0: 0 of 0\nrow 1: ")
    assert 0 < len(contents[1]) < len(long) / 10
