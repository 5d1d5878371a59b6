"""Every window that a compaction looked at is named: where it stands, and its row or the one that stands for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.config import Profile
from lam_vllm.encoders.base import Encoder
from lam_vllm.index import PrefixWindows
from tests.core.chats import BagOfWords, chats
from tests.index.prefixes import compactor_of, windows_of

PROFILES: tuple[Profile, ...] = ("guarded", "paper")
REPORT = "\n".join(f"line {place} of a report about the files of a project" for place in range(4))


def text_of(messages: list[Any], prefix: PrefixWindows, place: int) -> str:
    window = prefix.windows[place]
    content = messages[window.message]["content"]
    text: str = content if window.part is None else content[window.part]["text"]
    return text[window.start : window.end]


def same(one: PrefixWindows, other: PrefixWindows) -> bool:
    alike = all(getattr(one, name) == getattr(other, name) for name in ("digest", "earlier", "windows", "gaps"))
    return alike and one.rows.tobytes() == other.rows.tobytes()


@pytest.mark.parametrize("profile", PROFILES)
@given(chat=chats())
@settings(deadline=None)
def test_a_row_is_the_embedding_of_its_window_and_a_distance_that_of_the_dropped_one(
    profile: Profile, chat: list[Any]
) -> None:
    prefix, encode = windows_of(compactor_of(profile), chat), BagOfWords().encode
    own = [window.row for window in prefix.windows if window.distance is None]
    assert own == list(range(len(prefix.rows)))
    for place, window in enumerate(prefix.windows):
        row = encode(text_of(chat, prefix, place))
        if window.distance is None:
            assert row.tobytes() == prefix.rows[window.row].tobytes()
            continue
        apart = np.linalg.norm(row.astype(np.float64) - prefix.rows[window.row].astype(np.float64))
        assert apart <= window.distance <= apart * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("profile", PROFILES)
@given(chat=chats(opaque=False), data=st.data())
@settings(deadline=None)
def test_however_messages_arrive_and_fork_a_prefix_has_the_same_windows(
    profile: Profile, chat: list[Any], data: st.DataObject
) -> None:
    grown = compactor_of(profile)
    for length in sorted(data.draw(st.sets(st.integers(1, len(chat)), max_size=4))):
        windows_of(grown, chat[:length])
    at = data.draw(st.integers(1, len(chat)))
    other = [*chat[:at], {"role": "tool", "content": data.draw(st.sampled_from((REPORT, REPORT * 2)))}]
    windows_of(grown, other)  # a fork that goes on by itself
    for messages in (chat, other, chat[:at]):
        assert same(windows_of(grown, messages), windows_of(compactor_of(profile), messages))


def test_a_prefix_names_every_one_that_it_extends_whether_it_was_known_or_not() -> None:
    chat = [{"role": "tool", "content": f"{REPORT} {place}"} for place in range(4)]
    digests = [windows_of(compactor_of("paper"), chat[:length]).digest for length in (1, 2, 3, 4)]
    assert windows_of(compactor_of("paper"), chat).earlier == tuple(digests[:3])
    assert windows_of(compactor_of("paper"), []).earlier == ()


def test_rows_that_were_handed_out_stay_as_they_were_while_the_conversation_goes_on() -> None:
    compactor = compactor_of("paper")
    chat = [{"role": "tool", "content": f"{place} words of result {place * place} here"} for place in range(60)]
    first = windows_of(compactor, chat[:3])
    before = first.rows.copy()
    for length in range(4, 60):
        windows_of(compactor, chat[:length])
    windows_of(compactor, [*chat[:2], *chat[5:9]])
    assert first.rows.tobytes() == before.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        first.rows[0, 0] = 0.0


def test_windows_of_parts_and_of_excluded_and_short_results() -> None:
    messages = [
        {"role": "tool", "content": [{"type": "image_url"}, {"type": "text", "text": REPORT}, "bare"]},
        {"role": "tool", "name": "read_earlier_result", "content": REPORT.replace("report", "note")},
        {"role": "user", "content": REPORT},
    ]
    prefix = windows_of(compactor_of("paper"), messages)
    assert {(window.message, window.part, window.result) for window in prefix.windows} == {(0, 1, 1)}
    assert "".join(text_of(messages, prefix, place) for place in range(len(prefix.windows))) == REPORT


def test_exact_leaves_nothing_to_be_indexed(count_tokens: Any, encoder: Encoder) -> None:
    from lam_vllm import Compactor, CompactorConfig

    kept: list[PrefixWindows] = []
    compactor = Compactor(CompactorConfig(profile="exact"), count_tokens, encoder)
    compactor.compact([{"role": "tool", "content": REPORT}], keep=kept.append)
    assert kept == []
