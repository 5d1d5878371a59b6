from __future__ import annotations

from lam_vllm.serving.salt import LONGEST_SALT, salt_of


def test_the_field_goes_before_the_header_and_nothing_is_the_empty_salt() -> None:
    assert salt_of("field", "header") == "field"
    assert salt_of("", "header") == ""
    assert salt_of(None, "header") == "header"
    assert salt_of(7, None) == salt_of(None, None) == ""


def test_a_salt_of_any_length_costs_what_a_short_one_does_and_stays_one_of_its_own() -> None:
    longest = "s" * LONGEST_SALT
    assert salt_of(longest, None) == longest
    longer = [salt_of(longest + end, None) for end in ("a", "b", "\ud800")]
    assert len(set(longer)) == 3
    assert max(map(len, longer)) < 100
    assert salt_of(longest + "a", None) == salt_of(None, longest + "a")
