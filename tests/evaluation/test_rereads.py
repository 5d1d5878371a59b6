"""Read, edit, read: the places are found by content, and no change is hidden in `exact` and `guarded`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from lam_vllm import Compactor, make_config, reconstruct
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.view import inspect_run
from lam_vllm.evaluation.rereads import Reread, find_rereads
from lam_vllm.evaluation.second_reads import SecondReads, second_reads, tells_the_truth
from lam_vllm.types import Message
from tests.core.chats import BagOfWords

FILE = [f"value_{n} = compute(first_argument, argument_{n}, timeout={n * 3})" for n in range(24)]
CHANGED = [*FILE[:10], "value_10 = None", *FILE[11:]]
SED = "sed -i 's/compute.*/None/' file.py"


def run_of(*turns: tuple[str, str | Sequence[str]]) -> Run:
    """What the assistant said and what came back, turn by turn."""
    messages: list[Message] = [{"role": "user", "content": "Please look into it."}]
    for said, result in turns:
        content = result if isinstance(result, str) else "\n".join(result)
        messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": content}]
    return Run("run", "made", tuple(messages))


def numbered(lines: Sequence[str], first: int = 1) -> list[str]:
    return [f"{number:6}\t{line}" for number, line in enumerate(lines, first)]


def compactor(profile: str, encoder: Encoder, *, alias: bool = False) -> Compactor:
    config = make_config({"profile": profile, "directory_aliases": alias})
    return Compactor(config, lambda text: len(text) // 4, None if profile == "exact" else encoder)


def total(run: Run, made: Compactor) -> SecondReads:
    return sum(second_reads(run, made, find_rereads(run.messages)), SecondReads())


def test_a_changed_line_is_found_with_what_stood_there_before() -> None:
    run = run_of(("cat file.py", FILE), (SED, ""), ("cat file.py", CHANGED))
    assert find_rereads(run.messages) == [
        Reread(2, 6, None, (10,), frozenset({10}), (FILE[10] + "\n",), by_command=True, by_content=False)
    ]


@pytest.mark.parametrize(
    ("second", "changed", "deleted"),
    [
        ([*FILE[:10], "put_in = True", *FILE[10:]], (10,), 0),
        ([*FILE[:10], *FILE[12:]], (), 2),
        (FILE[4:18], None, 0),
        (FILE, None, 0),
        ([*FILE[:5], *(f"new {n}" for n in range(21)), *FILE[5:]], None, 0),
        ([*FILE[:4], "changed", *(f"another {n}" for n in range(9))], None, 0),
    ],
    ids=["put in", "taken out", "another range", "the same", "too long a change", "too little in common"],
)
@pytest.mark.parametrize("view", [list, numbered])
def test_numbers_do_not_count_and_only_changes_within_a_region_do(
    second: list[str], changed: tuple[int, ...] | None, deleted: int, view: Callable[[Sequence[str]], list[str]]
) -> None:
    found = find_rereads(run_of(("cat", view(FILE)), (SED, ""), ("cat", view(second))).messages)
    assert [(one.changed, len(one.deleted)) for one in found] == ([] if changed is None else [(changed, deleted)])


def test_a_line_is_new_where_nothing_above_shows_it() -> None:
    twice = [*FILE[:5], "value_10 = None", *FILE[6:10], "value_10 = None", *FILE[11:]]
    snippet = ("sed -n 5,15p file.py", numbered(["value_10 = None"], 11))
    (alone,) = find_rereads(run_of(("cat", FILE), (SED, twice)).messages)
    assert (alone.changed, alone.new) == ((5, 10), frozenset({5}))
    (seen,) = find_rereads(run_of(("cat", FILE), snippet, ("cat", CHANGED)).messages)
    assert (seen.changed, seen.new) == ((10,), frozenset())


@pytest.mark.parametrize(
    "said",
    [
        SED,
        "cat > file.py <<'EOF'\nvalue_10 = None\nEOF",
        '{"arguments": "{\\"command\\": \\"str_replace\\"}", "name": "str_replace_editor"}',
        "<function=str_replace_editor>\n<parameter=command>insert</parameter>",
        "edit 11:11\nanother\nend_of_edit",
        "git apply fix.patch",
        "python -c \"open('file.py', 'w').write(text)\"",
    ],
)
def test_editing_commands_are_known(said: str) -> None:
    (found,) = find_rereads(run_of(("cat", FILE), (said, "done"), ("cat", CHANGED)).messages)
    assert found.by_command


@pytest.mark.parametrize(
    "said", ["cat file.py", "grep -n create file.py", '{"command": "view", "name": "str_replace_editor"}']
)
def test_reading_commands_are_no_edits(said: str) -> None:
    (found,) = find_rereads(run_of(("cat", FILE), (said, CHANGED)).messages)
    assert not found.by_command and not found.by_content


def test_a_changed_line_in_the_words_or_the_call_between_is_an_edit_by_content() -> None:
    call = {"id": "1", "function": {"name": "poke", "arguments": '{"line": "value_10 = None"}'}}
    run = run_of(("cat", FILE), ("", CHANGED))
    messages = [*run.messages[:3], {"role": "assistant", "content": None, "tool_calls": [call]}, run.messages[4]]
    (found,) = find_rereads(messages)
    assert found.by_content and not found.by_command


def test_results_of_one_turn_have_no_action_between() -> None:
    messages = run_of(("both", FILE)).messages
    assert find_rereads([*messages, {"role": "tool", "content": "\n".join(CHANGED)}]) == []


def test_parts_of_one_long_line_are_a_region() -> None:
    rows = [f'{{"id": {n}, "name": "row number {n}", "state": "ready"}}' for n in range(40)]
    before, after = (", ".join(rows), ", ".join([*rows[:9], rows[9].replace("ready", "stuck"), *rows[10:]]))
    (found,) = find_rereads(run_of(("list", before), ("update", "ok"), ("list", after)).messages)
    assert len(found.changed) == 1 and found.deleted == ('"state": "ready"}',)


@pytest.mark.parametrize("profile", ["exact", "guarded"])
@pytest.mark.parametrize("view", [list, numbered])
def test_a_change_is_shown_in_the_second_read(
    profile: str, view: Callable[[Sequence[str]], list[str]], encoder: Encoder
) -> None:
    found = total(run_of(("cat", view(FILE)), (SED, ""), ("cat", view(CHANGED))), compactor(profile, encoder))
    assert (found.changed, found.shown, found.new, found.new_shown) == (1, 1, 1, 1)
    assert (found.hidden, found.untrue, found.hiding) == (0, 0, 0)


@pytest.mark.parametrize("profile", ["exact", "guarded"])
def test_a_change_that_the_edit_tool_showed_is_named(profile: str, encoder: Encoder) -> None:
    written = [f"value_{n} = look_up(the_table, argument_{n}, otherwise=None)" for n in range(8, 16)]
    run = run_of(("cat", FILE), (SED, written), ("cat", [*FILE[:8], *written, *FILE[16:]]))
    *_, last = second_reads(run, compactor(profile, encoder), find_rereads(run.messages))
    assert (last.changed, last.shown, last.named, last.new) == (8, 0, 8, 0)


def test_the_paper_hides_a_changed_line_in_a_near_window(encoder: Encoder) -> None:
    found = total(run_of(("cat", FILE), (SED, ""), ("cat", CHANGED)), compactor("paper", encoder))
    assert (found.changed, found.hidden, found.hiding, found.new_shown) == (1, 1, 1, 0)


def test_a_stub_that_leaves_out_or_adds_a_line_is_untrue(encoder: Encoder) -> None:
    rows = [f"account {n:02} of the harbour office\n    balance {500 + n * n} crowns" for n in range(16)]
    raised = [row.replace("crowns", "ducats") if n % 3 == 0 else row for n, row in enumerate(rows)]
    run = run_of(("cat", rows), ("pay", ""), ("cat", raised))
    (cut,) = inspect_run(run, compactor("guarded", encoder), len).cuts
    text = "\n".join(raised)
    assert cut.decision.stub.startswith("[like lines")
    assert tells_the_truth(cut, text)
    assert not tells_the_truth(replace(cut, kept=cut.kept.partition("\n")[2]), text)
    lie = cut.decision._replace(stub=cut.decision.stub.replace("without lines 2, ", "without lines "))
    assert lie.stub != cut.decision.stub and not tells_the_truth(replace(cut, decision=lie), text)


@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("profile", ["exact", "guarded"])
def test_recorded_runs_hide_no_change(profile: str, alias: bool, six_runs: list[Run]) -> None:
    found = SecondReads()
    for run in six_runs:  # bench/rereads.py does all of them, with the real encoder
        made = compactor(profile, BagOfWords(), alias=alias)
        found += total(run, made)
        if profile == "exact":
            assert reconstruct(made.compact(run.messages).messages) == list(run.messages)
    assert found.changed == found.shown + found.named > 40
    assert (found.hidden, found.hiding, found.untrue) == (0, 0, 0)
    assert found.new == found.new_shown > 10
