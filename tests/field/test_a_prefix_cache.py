"""Group A: what was sent once is sent again, so that the server's prefix cache survives."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import Any

import pytest

from lam_vllm import Compaction, OptionError, make_config, prefix_breaks
from lam_vllm.types import Message

from .agent import MODULE, OTHER, Make, agent, emitted, listing, numbered

BLOCK_TOKENS = 16
EDITED = MODULE.replace("timeout=30", "timeout=31")
VISITS = (MODULE, OTHER, MODULE, EDITED, OTHER + "\n" + MODULE, MODULE)
"""Reads that repeat earlier ones whole, in part, and with a changed line."""


def page(clock: str, unread: int) -> str:
    """The accessibility tree of a web page, in which a clock and a badge change."""
    rows = [f"[{n}] link 'Message number {n} from the garden club' clickable focusable" for n in range(30)]
    return "\n".join([f"[100] heading 'Inbox at {clock}'", *rows[:15], f"[101] badge '{unread} unread'", *rows[15:]])


def test_f01_a_pass_that_removes_nothing_hands_on_the_same_objects(make: Make) -> None:
    messages = agent(MODULE, OTHER)
    before = [*messages]
    compaction = make().compact(messages)
    assert compaction.messages is messages
    assert all(given is kept for given, kept in zip(before, compaction.messages, strict=True))


def test_f01_messages_beside_a_replaced_one_are_the_same_objects(make: Make) -> None:
    messages = agent(MODULE, MODULE, OTHER)
    compaction = make().compact(messages)
    changed = [index for index, message in enumerate(compaction.messages) if message is not messages[index]]
    assert changed == [5]


def test_f02_no_turn_prefills_more_uncached_tokens_than_it_would_without(
    make: Make, prompt_ids: Callable[[Sequence[Message]], list[int]]
) -> None:
    compactor, messages = make(), agent(*VISITS)
    turns = range(4, len(messages) + 1, 2)

    def uncached(prompts: list[list[int]]) -> list[int]:
        cached = [
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*two, strict=False)))
            for two in pairwise(prompts)
        ]
        return [
            len(new) - cached_ // BLOCK_TOKENS * BLOCK_TOKENS for new, cached_ in zip(prompts[1:], cached, strict=True)
        ]

    without = uncached([prompt_ids(messages[:k]) for k in turns])
    with_lam = uncached([prompt_ids(compactor.compact(messages[:k]).messages) for k in turns])
    assert all(on <= off + BLOCK_TOKENS for on, off in zip(with_lam, without, strict=True))
    assert sum(with_lam) < sum(without) / 2


def test_f03_cuts_never_move_as_the_history_grows(make: Make) -> None:
    messages = agent(*VISITS)
    whole = make().compact(messages).decisions
    assert whole
    for k in range(len(messages) + 1):
        assert make().compact(messages[:k]).decisions == tuple(cut for cut in whole if cut.message < k)


def test_f04_of_several_copies_only_the_newer_ones_are_replaced(make: Make) -> None:
    compactor = make()
    for copies in range(1, 5):
        contents = emitted(compactor.compact(agent(*[MODULE] * copies)))
        assert contents[0] == MODULE
        assert all(len(content) < len(MODULE) / 4 for content in contents[1:])


def test_f05_old_results_stay_as_they_were_sent_however_long_the_history(make: Make) -> None:
    results = [f"{MODULE}\nresult of step {turn} is {turn * 7919 % 1000}" for turn in range(8)]
    messages = agent(*results)
    assert prefix_breaks(make().compact, messages) == []
    assert emitted(make().compact(messages))[0] == results[0]


def test_f05_short_names_of_directories_stay_as_they_were_sent(make_careful: Make) -> None:
    first, wider = listing("berth", "crew", "tide"), listing("berth", "crew", "tide", "wind", "yard", "zone")
    messages = agent(
        first,
        MODULE,
        f"{OTHER}\n{wider}",
        wider,
        first,
        listing("ant", "bee", "cod", folder="/opt/pilot/made/by/hand/"),
    )
    compactor = make_careful(directory_aliases=True)
    assert prefix_breaks(compactor.compact, messages) == []
    tops = [content.split("\n")[0] for content in emitted(compactor.compact(messages))]
    defined = [top.startswith("[@1/ is ") for top in tops]
    assert defined == [True, False, True, False, False, True]


def test_f06_a_reference_does_not_depend_on_how_many_turns_lie_between(make: Make) -> None:
    near, far = agent(MODULE, MODULE), agent(MODULE, MODULE)
    for turn in range(12):
        far[4:4] = [{"role": "user", "content": f"Wait {turn}."}, {"role": "assistant", "content": "I wait."}]
    assert emitted(make().compact(far)) == emitted(make().compact(near))
    assert len(make().compact(far).messages) == len(far)


def test_f07_no_message_of_a_user_or_the_system_is_ever_touched(make: Make) -> None:
    messages = agent(*VISITS)
    messages.insert(6, {"role": "user", "content": MODULE})
    for k in range(len(messages) + 1):
        compacted = make().compact(messages[:k]).messages
        assert all(compacted[i] is messages[i] for i in range(k) if messages[i]["role"] != "tool")


def test_f07_every_number_in_a_reference_tells_its_target_or_its_length(make_careful: Make) -> None:
    messages = agent(*VISITS)
    cuts = make_careful().compact(messages).decisions
    assert len(cuts) == 6
    for cut in cuts:
        lines = messages[cut.message]["content"][cut.start : cut.end].removesuffix("\n").count("\n") + 1
        numbers = {int(number) for number in re.findall(r"\d+", cut.stub)}
        assert numbers <= {cut.target_result, *(cut.target_lines or ()), lines}


def test_f09_first_occurrences_stay_whole_and_in_order_before_a_cache_mark(make: Make) -> None:
    marked: list[dict[str, Any]] = [
        {"type": "text", "text": MODULE},
        {"type": "text", "text": OTHER, "cache_control": {"type": "ephemeral"}},
    ]
    messages = agent(marked, copy.deepcopy(marked))
    compacted = make().compact(messages).messages
    assert compacted[:5] == messages[:5]
    parts = compacted[5]["content"]
    assert [{**part, "text": ""} for part in parts] == [{**part, "text": ""} for part in marked]
    assert all(0 < len(part["text"]) < len(given["text"]) for part, given in zip(parts, marked, strict=True))


def test_f10_a_limit_on_the_distance_of_references_is_no_sliding_window(make_careful: Make) -> None:
    visits = [
        MODULE,
        *(numbered([f"entry {n * 37 % 1000} of list {turn}" for n in range(20)]) for turn in range(4)),
        MODULE,
    ]
    messages = agent(*visits)
    near = make_careful(max_reference_distance_tokens=1000)
    assert prefix_breaks(near.compact, messages) == []
    assert emitted(near.compact(messages))[-1] == MODULE
    assert near.compact(messages).report.reasons["too_far"] == 1
    assert len(emitted(make_careful().compact(messages))[-1]) < len(MODULE) / 4


def test_f11_a_repeat_is_replaced_when_it_first_appears_at_the_very_end(make: Make) -> None:
    compaction = make().compact(agent(OTHER, MODULE, MODULE))
    assert [cut.message for cut in compaction.decisions] == [7]


@pytest.mark.parametrize("option", ["keep_last", "protect_recent", "tail_messages"])
def test_f11_keeping_the_tail_verbatim_is_no_option(option: str) -> None:
    with pytest.raises(OptionError, match=option):
        make_config({option: 8})


def test_f14_the_checker_finds_nothing_here_and_finds_a_rule_that_rewrites_history(make: Make) -> None:
    messages = agent(*VISITS)
    compactor = make()

    def keeping_the_last_two(given: Sequence[Message]) -> Compaction:
        compaction = compactor.compact(given)
        kept = max(0, len(given) - 2)
        return Compaction([*compaction.messages[:kept], *given[kept:]], compaction.decisions, compaction.report)

    assert prefix_breaks(compactor.compact, messages) == []
    assert prefix_breaks(keeping_the_last_two, messages) != []


def test_f16_a_removal_is_counted_once_and_not_again_on_later_turns(make: Make) -> None:
    compactor, messages = make(), agent(*VISITS)
    reports = [compactor.compact(messages[:k]).report for k in range(len(messages) + 1)]
    for layer, tokens in reports[-1].removed_tokens.items():
        assert sum(report.new_removed_tokens.get(layer, 0) for report in reports) == tokens
    assert sum(report.new_stub_tokens for report in reports) == reports[-1].stub_tokens
    assert compactor.compact(messages).report.new_removed_tokens == {"l0": 0, "l1": 0, "alias": 0}


def test_f17_page_snapshots_that_differ_slightly_stay_as_they_were_sent(make: Make) -> None:
    snapshots = [page("09:14", 3), page("09:15", 3), page("09:17", 4)]
    messages: list[Any] = agent(*snapshots, tool="browser")
    assert prefix_breaks(make().compact, messages) == []
    contents = emitted(make().compact(messages))
    assert contents[0] == snapshots[0]
    assert all(len(content) < len(snapshots[0]) / 2 for content in contents[1:])


def test_f17_what_changed_on_a_page_is_shown(make_careful: Make) -> None:
    contents = emitted(make_careful().compact(agent(page("09:14", 3), page("09:15", 4), tool="browser")))
    assert "[100] heading 'Inbox at 09:15'" in contents[1].split("\n")
    assert "[101] badge '4 unread'" in contents[1].split("\n")
