from __future__ import annotations

import pytest

from lam_vllm.serving.prefix_watch import PrefixWatch, is_sampled
from lam_vllm.types import Message


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def test_a_growing_conversation_breaks_nothing() -> None:
    watch = PrefixWatch()
    for length in range(1, 6):
        messages = said(*"abcde"[:length])
        assert watch.note("", messages, messages, "config") is None


def test_a_retry_and_a_fork_of_the_last_message_after_a_shared_first_one_break_nothing() -> None:
    watch = PrefixWatch()
    for messages in (said("a", "b"), said("a", "b"), said("a", "x")):
        assert watch.note("", messages, messages, "config") is None


def test_other_bytes_for_a_known_prefix_are_a_defect() -> None:
    watch = PrefixWatch()
    assert watch.note("", said("a", "b"), said("a", "B"), "config") is None
    assert watch.note("", said("a", "b", "c"), said("a", "b", "c"), "config") == "defect"


def test_other_bytes_under_another_config_are_the_configs_doing() -> None:
    watch = PrefixWatch()
    watch.note("", said("a", "b"), said("a", "B"), "config")
    assert watch.note("", said("a", "b", "c"), said("a", "b", "c"), "other") == "config_changed"


def test_another_config_with_the_same_bytes_breaks_nothing() -> None:
    watch = PrefixWatch()
    watch.note("", said("a", "b"), said("a", "b"), "config")
    assert watch.note("", said("a", "b", "c"), said("a", "b", "c"), "other") is None


@pytest.mark.parametrize("failed_first", [True, False])
def test_a_failure_that_let_the_originals_through_breaks_the_prefix_before_or_after(failed_first: bool) -> None:
    watch = PrefixWatch()
    first, second = (said("a", "b"), said("a", "B")) if failed_first else (said("a", "B"), said("a", "b"))
    watch.note("", said("a", "b"), first, "config", failed=failed_first)
    assert watch.note("", said("a", "b"), second, "config", failed=not failed_first) == "failed_open"


def test_an_edit_of_a_known_message_after_two_shared_ones_is_the_clients_doing() -> None:
    watch = PrefixWatch()
    watch.note("", said("a", "b", "c", "d"), said("a", "b", "c", "d"), "config")
    edited = said("a", "b", "X", "d")
    assert watch.note("", edited, edited, "config") == "client_changed"


def test_salts_do_not_see_each_other() -> None:
    watch = PrefixWatch()
    watch.note("one", said("a", "b"), said("a", "B"), "config")
    assert watch.note("two", said("a", "b"), said("a", "b"), "config") is None


def test_the_watch_is_bounded_and_forgets_the_least_recent_prefix() -> None:
    watch = PrefixWatch(max_messages=4)
    watch.note("", said("a", "b"), said("a", "B"), "config")
    watch.note("", said("p", "q", "r", "s"), said("p", "q", "r", "s"), "config")
    assert len(watch) == 4
    assert watch.note("", said("a", "b"), said("a", "b"), "config") is None


def test_a_share_of_the_prefixes_is_sampled_by_their_digests_and_the_empty_one_is_not() -> None:
    digests = [f"{number << 120:032x}" for number in range(256)]
    assert [digest for digest in digests if is_sampled(digest, 1 / 64)] == digests[:4]
    assert all(is_sampled(digest, 1.0) for digest in digests)
    assert not any(is_sampled(digest, 0.0) for digest in digests)
    assert not is_sampled("", 1.0)
