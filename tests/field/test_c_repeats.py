"""Group C: what an agent sees again, what only looks like it, and what a reference tells the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lam_vllm import Compaction, Compactor, look_up, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.stubs import parse_stub
from lam_vllm.types import Decision, Message

from .agent import FOLDER, LINES, MODULE, OTHER, Answer, Make, agent, emitted, ledger, listing, numbered

READS = 592
TEST_RUN = """\
collected 3 items
tests/test_harbour.py::test_anchor FAILED because the chain is too short
tests/test_harbour.py::test_sail FAILED because the wind is not read
tests/test_harbour.py::test_rudder PASSED
2 failed and 1 passed"""
TEAM = (
    ("The team meets on Tuesday in the blue room.", "On which day does the team meet?", "Tuesday"),
    ("The leader of the team is Oscar Lindgren.", "Who is the leader of the team?", "Oscar Lindgren"),
    ("The project is called Falcon.", "What is the project called?", "Falcon"),
    ("The office is in the city of Lisbon.", "In which city is the office?", "Lisbon"),
    ("The server runs on port 8443.", "On which port does the server run?", "8443"),
    ("The database is PostgreSQL.", "Which database is used?", "PostgreSQL"),
)
"""Lines of a file, a question about each, and the words that answer it."""


def printed(compaction: Compaction, cut: Decision) -> list[str]:
    """The lines, as rendered, that a reference names."""
    content = emitted(compaction)[cut.target_result - 1]
    lines: list[str] = content.split("\n")
    return lines if cut.target_lines is None else lines[cut.target_lines[0] - 1 : cut.target_lines[1]]


def removed(messages: Sequence[Message], cut: Decision) -> list[str]:
    """The lines that a reference stands for."""
    text: str = messages[cut.message]["content"]
    return text[cut.start : cut.end].removesuffix("\n").split("\n")


def test_f32_a_file_read_592_times_costs_linear_work_and_memory(
    make: Make, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    config = make().config
    encoder = None if config.profile == "exact" else remembering
    costs = []
    for reads in (1, READS // 2, READS):
        counted: list[int] = []

        def watched(text: str, counted: list[int] = counted) -> int:
            counted.append(len(text))
            return count_tokens(text)

        compactor = Compactor(config, watched, encoder)
        compaction = compactor.compact(agent(*[MODULE] * reads))
        work = compaction.report.work
        assert work.new_lines == reads * len(LINES)
        assert work.encoder_calls <= 2
        costs.append((compactor.memo_bytes_used, sum(counted)))
    for one, half, all_ in zip(*costs, strict=True):
        assert all_ - half <= 1.05 * (half - one) * READS / (READS - 2)
    assert sum(map(len, emitted(compaction))) < len(MODULE) + READS * 40


def test_f33_another_range_of_the_same_file_is_not_the_same_text(make_careful: Make) -> None:
    contents = emitted(make_careful().compact(agent("\n".join(LINES[:8]), "\n".join(LINES[12:20]))))
    assert contents == ["\n".join(LINES[:8]), "\n".join(LINES[12:20])]


def test_f33_the_same_text_is_a_repeat_whatever_tool_and_arguments_brought_it(make: Make) -> None:
    messages = agent(MODULE, OTHER, MODULE)
    messages[6]["tool_calls"][0]["function"] = {"name": "bash", "arguments": '{"command": "cat a_copy.py"}'}
    assert len(emitted(make().compact(messages))[2]) < len(MODULE) / 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timeout=30)", "timeout=31)"),
        ("value_5 = compute(", "value_5 = not compute("),
        ("value_9 = compute(first_argument", "value_9 = compute(first_arguments"),
    ],
)
@pytest.mark.parametrize("view", [numbered, "\n".join])
def test_f34_read_edit_read_shows_the_changed_line(
    make_careful: Make, view: Callable[[Sequence[str]], str], old: str, new: str
) -> None:
    edited = MODULE.replace(old, new).split("\n")
    contents = emitted(make_careful().compact(agent(view(LINES), "The file was edited.", view(edited))))
    changed = set(view(edited).split("\n")) - set(view(LINES).split("\n"))
    assert len(changed) == 1
    assert changed <= set(contents[2].split("\n"))
    assert len(contents[2]) < len(MODULE) / 3


def test_f34_a_line_put_in_is_shown_and_the_rest_is_counted_on(make_careful: Make) -> None:
    edited = [*LINES[:10], "inserted = True", *LINES[10:]]
    text = emitted(make_careful().compact(agent(numbered(LINES), numbered(edited))))[1]
    assert "    11\tinserted = True" in text.split("\n")
    assert ", numbers +1]" in text


def test_f34_changes_all_over_a_file_are_all_shown(make_careful: Make) -> None:
    messages = agent(ledger(0), ledger(1))
    compaction = make_careful().compact(messages)
    assert set(ledger(1).split("\n")) - set(ledger(0).split("\n")) <= set(emitted(compaction)[1].split("\n"))
    alike = {cut.stub.startswith("[like ") for cut in compaction.decisions}
    assert alike == ({True} if compaction.report.profile == "guarded" else set())


@pytest.mark.parametrize("view", [numbered, "\n".join])
def test_f34_a_second_read_after_the_edit_still_shows_the_edit(
    make_careful: Make, view: Callable[[Sequence[str]], str]
) -> None:
    edited = MODULE.replace("timeout=30)", "timeout=31)").split("\n")
    compaction = make_careful().compact(agent(view(LINES), view(edited), view(edited)))
    shown = [set(printed(compaction, cut)) for cut in compaction.decisions if cut.result == 3]
    assert view(edited).split("\n")[10] in set(emitted(compaction)[2].split("\n")).union(*shown)


def test_f34_a_line_taken_out_stands_in_nothing_that_is_referred_to(make_careful: Make) -> None:
    compaction = make_careful().compact(agent(MODULE, "\n".join([*LINES[:10], *LINES[11:]])))
    assert compaction.changed
    assert not any(LINES[10] in printed(compaction, cut) for cut in compaction.decisions)


def test_f34_a_line_that_was_changed_to_what_stands_elsewhere_is_shown_too(make_careful: Make) -> None:
    before = ledger(0).replace("balance 509 ", "balance 501 ")
    after = ledger(1).replace("balance 510 ", "balance 504 ")
    assert after.split("\n")[7] == before.split("\n")[5] != before.split("\n")[7]
    text = emitted(make_careful().compact(agent(before, after)))[1]
    assert after.split("\n")[7] in text.split("\n")


def test_f35_in_a_numbered_view_a_reference_is_obviously_no_line_of_the_file(make_careful: Make) -> None:
    edited = MODULE.replace("timeout=30", "timeout=31").split("\n")
    lines = emitted(make_careful().compact(agent(numbered(LINES), numbered(edited))))[1].split("\n")
    stubs = [line for line in lines if parse_stub(line) is not None]
    assert stubs
    assert [line for line in lines if line not in stubs] == [f"{11:6}\t{edited[10]}"]
    assert all(line.startswith("[") and line.endswith(("]", ")")) for line in stubs)


def test_f35_a_reference_that_a_model_wrote_into_a_file_is_read_back_marked(make: Make) -> None:
    first = make().compact(agent(MODULE, MODULE))
    copied = numbered(["import harbour", *emitted(first)[1].split("\n"), *LINES[:9]])
    messages = agent(MODULE, MODULE, copied, copied)
    compaction = make().compact(messages)
    assert emitted(compaction)[2:] == ["\\" + copied] * 2
    assert compaction.report.reasons["stub_like_input"] == 2


def test_f37_every_reference_names_text_that_stands_in_this_very_request(count_tokens: Callable[[str], int]) -> None:
    messages = agent(MODULE, OTHER, "\n".join([*LINES[3:9], "between", OTHER]), "\n".join(LINES[5:20]), MODULE)
    compaction = Compactor(make_config({"profile": "exact"}), count_tokens).compact(messages)
    assert len(compaction.decisions) == 4
    for cut in compaction.decisions:
        lines = removed(messages, cut)
        assert printed(compaction, cut) == lines
        first, last = cut.target_lines or (1, len(lines))
        assert look_up(compaction.messages, cut.target_result, first, last).split("\n") == lines


def test_f37_what_a_reference_names_in_a_listing_stands_there_under_its_short_name(
    count_tokens: Callable[[str], int],
) -> None:
    messages = agent(f"{OTHER}\n{listing('berth', 'crew', 'tide')}", listing("crew", "tide", "wind"), MODULE)
    options = {"profile": "exact", "directory_aliases": True}
    compaction = Compactor(make_config(options), count_tokens).compact(messages)
    (cut,) = (cut for cut in compaction.decisions if cut.layer == "l0")
    assert printed(compaction, cut) == [line.replace(FOLDER, "@1/") for line in removed(messages, cut)]
    first, last = cut.target_lines or (1, 0)
    assert look_up(compaction.messages, cut.target_result, first, last).split("\n") == removed(messages, cut)


def test_f37_when_the_client_drops_the_original_the_repeat_is_whole_again(make: Make) -> None:
    compactor = make()
    messages = agent(MODULE, OTHER, MODULE)
    assert len(emitted(compactor.compact(messages))[2]) < len(MODULE) / 4
    assert emitted(compactor.compact([*messages[:2], *messages[4:]])) == [OTHER, MODULE]
    cleared = [*messages[:3], {**messages[3], "content": "(cleared)"}, *messages[4:]]
    assert emitted(compactor.compact(cleared)) == ["(cleared)", OTHER, MODULE]


def test_f39_a_first_read_is_whole_though_another_conversation_has_read_it(make: Make) -> None:
    compactor = make()
    parent = agent(MODULE, MODULE)
    compactor.compact(parent)
    child = [{"role": "system", "content": "You are a helper of another agent."}, *agent(MODULE)[1:]]
    for salt in ("", "another tenant"):
        assert compactor.compact(child, salt=salt).messages is child


def test_f39_a_short_name_that_another_conversation_defined_is_defined_again(make_careful: Make) -> None:
    compactor = make_careful(directory_aliases=True)
    files = listing("berth", "crew", "tide")
    parent, child = ([{"role": "system", "content": name}, *agent(files)] for name in ("parent", "child"))
    assert emitted(compactor.compact(child)) == emitted(compactor.compact(parent))
    assert emitted(compactor.compact(child))[0].startswith(f"[@1/ is {FOLDER} below]")


def test_f40_a_rerun_with_the_same_output_says_that_it_ran_and_printed_the_same(make_careful: Make) -> None:
    results = emitted(make_careful().compact(agent(TEST_RUN, "The file was edited.", TEST_RUN, TEST_RUN)))
    assert results[0] == TEST_RUN
    assert "repeat" in results[2]
    assert "the tool printed this again, unchanged" in results[2]
    assert results[3] == "[result 1 repeats]"


def test_f40_what_is_only_alike_is_not_called_unchanged(make_careful: Make) -> None:
    assert "unchanged" not in emitted(make_careful().compact(agent(ledger(0), ledger(1))))[1]


def test_f41_two_small_confirmations_are_both_whole(make_careful: Make) -> None:
    confirmation = "The file was written."
    compaction = make_careful().compact(agent(confirmation, MODULE, confirmation, tool="write_file"))
    assert emitted(compaction) == [confirmation, MODULE, confirmation]
    assert compaction.report.reasons == {"below_min_tokens": 1, "no_repeat": 2}


def test_f41_results_of_an_excluded_tool_are_whole_and_can_be_referred_to(make_careful: Make) -> None:
    messages = agent(MODULE, MODULE, tool="write_file") + agent(MODULE)[2:]
    compaction = make_careful(exclude_tools=["write_file"]).compact(messages)
    assert emitted(compaction)[:2] == [MODULE, MODULE]
    assert compaction.report.reasons == {"excluded_tool": 2}
    assert [(cut.message, cut.target_result) for cut in compaction.decisions] == [(7, 1)]


def test_f42_a_small_model_answers_from_the_text_that_a_reference_names(
    count_tokens: Callable[[str], int], answers: Answer
) -> None:
    sentences, questions, wanted = zip(*TEAM, strict=True)
    instruction = "You are a helpful assistant. Answer from the tool results in one short sentence."
    messages: list[Any] = [
        {"role": "system", "content": instruction},
        {"role": "user", "content": "Read team.txt."},
        {"role": "tool", "content": "\n".join(sentences)},
        {"role": "assistant", "content": "I read team.txt again."},
        {"role": "tool", "content": "\n".join(sentences)},
    ]
    compacted = Compactor(make_config({"profile": "exact"}), count_tokens).compact(messages).messages
    assert compacted[4]["content"].startswith("[result 1 repeats]")
    for given in (messages, compacted):
        said = answers(given, questions)
        assert [answer for answer, words in zip(wanted, said, strict=True) if answer not in words] == []


def test_f43_a_repeat_under_the_size_floor_is_whole(make_careful: Make) -> None:
    output = (
        TEST_RUN + "".join(f"slowest: {word} took {word}ty ms\n" for word in ("six", "seven", "four", "nine", "eight"))
    )[:344]
    assert len(output) == 344
    assert emitted(make_careful(min_tokens=200).compact(agent(output, output))) == [output, output]
    assert make_careful(min_tokens=200).compact(agent(output, output)).report.reasons["below_min_tokens"] == 1
    assert emitted(make_careful(min_tokens=20).compact(agent(output, output)))[1] != output


def test_f44_only_text_that_stands_whole_is_referred_to(make_careful: Make) -> None:
    new = OTHER.split("\n")
    mixed = [*LINES[:12], *new]
    messages = agent(
        MODULE,
        "\n".join(mixed),
        "\n".join([*mixed[6:], *LINES[12:]]),
        "\n".join(mixed),
        ledger(0),
        ledger(1),
        ledger(2),
    )
    compaction = make_careful().compact(messages)
    assert {cut.message for cut in compaction.decisions} >= {5, 7, 9}
    for cut in compaction.decisions:
        assert all(parse_stub(line) is None for line in printed(compaction, cut))
        shown = set(printed(compaction, cut)) | set(emitted(compaction)[cut.result - 1].split("\n"))
        assert set(removed(messages, cut)) <= shown


def test_f45_a_new_session_never_refers_to_an_earlier_one(make_careful: Make) -> None:
    compactor = make_careful()
    yesterday = agent(OTHER, MODULE, MODULE)
    compactor.compact(yesterday)
    today = agent(OTHER, MODULE)
    today[4] = {**today[4], "content": "Good morning."}
    assert compactor.compact(today).messages is today


def test_f50_identical_lines_of_one_message_are_shortened(make: Make) -> None:
    line = "warning: the cable of the third winch is worn"
    text = emitted(make().compact(agent("\n".join([line] * 50))))[0]
    assert text.startswith(line)
    assert len(text) < 5 * len(line)


def test_f50_every_result_that_stays_whole_has_a_reason(make: Make) -> None:
    messages = agent(MODULE, OTHER, "The engine runs.", "", None, iter([]), [], [{"type": "image_url"}], MODULE)
    compaction = make().compact(messages)
    shortened = {cut.message for cut in compaction.decisions}
    assert shortened == {len(messages) - 1}
    assert sum(compaction.report.reasons.values()) == compaction.report.observations - len(shortened) == 8
