"""Both measures on runs that are small enough to check by eye."""

from __future__ import annotations

from lam_vllm.evaluation.evidence import distinct_lines, gold_lines, patch_lines

PATCH = """\
diff --git a/area.py b/area.py
--- a/area.py
+++ b/area.py
@@ -1,5 +1,5 @@ class Shape:
 def area(w, h):
-    return w + h
+    return w * h

-- old comment marker
+- new comment marker
 x
"""


def chat(*results: str) -> list[dict[str, str]]:
    """A conversation in which every tool result follows a call."""
    messages = [{"role": "user", "content": "go"}]
    for result in results:
        messages += [{"role": "assistant", "content": "call"}, {"role": "tool", "content": result}]
    return messages


def test_gold_lines_are_context_and_removed_lines_of_hunks() -> None:
    assert patch_lines(PATCH) == ["def area(w, h):", "return w + h", "- old comment marker"]


def test_a_gold_line_is_kept_while_any_observation_shows_it() -> None:
    run = chat("1\tdef area(w, h):\n2\t    return w + h", "1\tdef area(w, h):\n2\t    return w + h")
    shorter = chat("1\tdef area(w, h):\n2\t    return w + h", "[result 1 repeats]")
    found = gold_lines(run, shorter, PATCH)
    assert (found.witnessed, found.kept, found.lost) == (2, 2, ())


def test_a_gold_line_that_only_a_stub_leads_to_is_lost() -> None:
    run = chat("def area(w, h):", "    return w + h")
    found = gold_lines(run, chat("def area(w, h):", "[result 1 repeats]"), PATCH)
    assert (found.witnessed, found.kept, found.relaxed, found.lost) == (2, 1, 1, ("return w + h",))


def test_a_line_that_stands_only_in_parts_counts_when_references_are_written_out() -> None:
    long = "x" * 2_001
    run = chat(f"{long}, def area(w, y", f"{long}, def area(w, h):")
    shorter = chat(f"{long}, def area(w, y", "[parts 1-2 of result 1 repeat, from «xxxxxxxxxxxx»]\nh):")
    found = gold_lines(run, shorter, PATCH)
    assert (found.witnessed, found.kept, found.relaxed) == (1, 0, 1)


def test_what_only_the_assistant_said_is_no_evidence() -> None:
    run = [{"role": "assistant", "content": "def area(w, h):"}, {"role": "tool", "content": "nothing"}]
    assert gold_lines(run, run, PATCH).witnessed == 0


def test_user_messages_are_observations_only_when_asked_for() -> None:
    run = [{"role": "assistant", "content": "look"}, {"role": "user", "content": "def area(w, h):"}]
    assert gold_lines(run, run, PATCH).witnessed == 0
    assert gold_lines(run, run, PATCH, observations="tool+user").witnessed == 1


def test_repeats_under_a_stub_lose_no_distinct_line() -> None:
    run = chat("alpha\nbeta\n", "alpha\nbeta\n", "gamma\nalpha")
    found = distinct_lines(run, chat("alpha\nbeta\n", "[result 1 repeats]", "gamma\n[line 1 of result 1 repeats]"))
    assert (found.distinct, found.readable, found.lost) == (4, 4, ())  # the empty last line is a line


def test_a_line_that_stands_nowhere_any_more_is_lost() -> None:
    found = distinct_lines(chat("alpha\nbeta", "alpha\nBETA"), chat("alpha\nbeta", "[result 1 repeats]"))
    assert (found.distinct, found.readable, found.lost) == (3, 2, ("BETA",))


def test_a_moved_line_needs_its_shift_printed() -> None:
    run = chat("  7\tfor x in y:\n  8\t    use(x)", " 17\tfor x in y:\n 18\t    use(x)")
    first = "  7\tfor x in y:\n  8\t    use(x)"
    with_shift = distinct_lines(run, chat(first, "[result 1 repeats, numbers +10]"))
    assert (with_shift.distinct, with_shift.readable) == (2, 2)
    assert distinct_lines(run, chat(first, "[result 1 repeats]")).lost == (" 17\tfor x in y:", " 18\t    use(x)")
    assert distinct_lines(run, chat(first, "[result 1 repeats, numbers -10]")).readable == 0


def test_a_shift_counts_only_in_the_observation_that_prints_it() -> None:
    run = chat("1:a", "2:a", "2:a")
    shorter = chat("1:a", "[result 1 repeats, numbers +1]", "[result 1 repeats]")
    assert distinct_lines(run, shorter).lost == ("2:a",)


def test_lines_that_repeat_several_times_move_by_the_shift_each_time() -> None:
    run = chat("1:a\n2:a\n3:a")
    assert distinct_lines(run, chat("1:a\n[line above repeats 2 times, numbers +1]")).lost == ()
    assert distinct_lines(run, chat("1:a\n[line above repeats 1 times, numbers +1]")).lost == ("3:a",)


def test_a_time_of_day_is_no_line_number() -> None:
    run = chat("12:30 started", "13:30 started")
    assert distinct_lines(run, chat("12:30 started", "[result 1 repeats, numbers +1]")).lost == ("13:30 started",)


def test_an_unnumbered_line_is_not_found_in_a_numbered_one() -> None:
    run = chat("3:a", "a")
    assert distinct_lines(run, chat("3:a", "[result 1 repeats, numbers -3]")).lost == ("a",)


def test_a_stub_is_no_kept_line_unless_the_tool_printed_it() -> None:
    run = chat("alpha", "[result 1 repeats]")
    assert distinct_lines(run, run).lost == ("[result 1 repeats]",)
    assert distinct_lines(run, chat("alpha", "\\[result 1 repeats]")).lost == ()


def test_text_parts_are_read_as_lines_of_one_observation() -> None:
    parts = [
        {"type": "text", "text": "alpha"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "beta"},
    ]
    run = [{"role": "tool", "content": parts}]
    assert distinct_lines(run, run).readable == 2


def test_a_long_line_is_judged_by_its_words_in_order() -> None:
    numbers = [f"word{number}" for number in range(400)]
    line, rest = " ".join(numbers), " ".join(numbers[200:])
    assert len(line) > 2_000
    whole = distinct_lines(chat(line), chat(line))
    assert (whole.distinct, whole.long_distinct, whole.long_readable) == (0, 400, 400)
    half = distinct_lines(chat(line), chat(rest))
    assert half.long_readable == 200
    turned = distinct_lines(chat(line), chat(" ".join(numbers[200:] + numbers[:200])))
    assert turned.long_readable == 200


def test_a_line_that_was_cut_is_readable_where_each_of_its_parts_is() -> None:
    parts = [f'"field {number}": {number}, ' for number in range(40)]
    line = "".join(parts)
    assert len(line) > 500
    shown = chat(line, "".join(parts[:3]) + '\n[parts 4-39 of result 1 repeat, from «"field 3": 3»]\n' + parts[39])
    found = distinct_lines(chat(line, line), shown)
    assert (found.distinct, found.readable, found.in_parts) == (1, 1, 0)  # it also stands whole
    halves = chat("".join(parts[:20]), "".join(parts[20:]))
    cut = distinct_lines(chat(line, ""), halves)
    assert (cut.distinct, cut.readable, cut.in_parts, cut.lost) == (2, 1, 1, ("",))
    one_gone = distinct_lines(chat(line), chat("".join(parts[:19]) + "".join(parts[20:])))
    assert (one_gone.readable, one_gone.lost) == (0, (line,))


def test_a_short_line_is_not_readable_in_parts() -> None:
    assert distinct_lines(chat("a, b"), chat("a, \nb")).lost == ("a, b",)


def test_a_short_name_is_written_out_where_its_text_defines_it() -> None:
    run = chat("/w/src/a.py\n/w/src/b.py", "@1/c.py")
    found = distinct_lines(run, chat("[@1/ is /w/src/ below]\n@1/a.py\n@1/b.py", "@1/c.py"))
    assert (found.distinct, found.lost) == (3, ())
    assert distinct_lines(run, chat("@1/a.py\n@1/b.py", "@1/c.py")).readable == 1


def test_an_escaped_line_end_separates_words() -> None:
    line = "a\\nb " * 500
    found = distinct_lines(chat(line), chat(line.replace("\\n", " ")))
    assert (found.long_distinct, found.long_readable) == (2, 2)
