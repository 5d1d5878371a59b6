"""Compaction of a recorded run under each search: pruned changes no byte, banded hangs on the conversation alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig, Profile, SearchName
from lam_vllm.encoders.base import BatchEncoder, traits_of
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.windowed import WindowedRun
from lam_vllm.evaluation.remembered import RememberedEncoder
from lam_vllm.types import Embedding
from tests.core.fake_encoders import TwoPassBag, noisy_pass

PROFILES: tuple[Profile, ...] = ("paper", "guarded")
PART = {"paper": 1000, "guarded": 24}
"""How many of the run's messages: the windows of `guarded` are encoded for these tests alone."""
SEARCHES: tuple[SearchName, ...] = ("banded", "pruned", "exhaustive")


def config(profile: Profile, search: SearchName) -> CompactorConfig:
    return CompactorConfig(profile=profile, search=search)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_pruned_search_changes_no_byte(
    profile: Profile,
    recorded: tuple[WindowedRun, Embedding],
    minilm: RememberedEncoder,
    count_tokens: Callable[[str], int],
) -> None:
    messages = recorded[0].run.messages[: PART[profile]]
    pruned, exhaustive = (
        Compactor(config(profile, search), count_tokens, minilm).compact(messages) for search in SEARCHES[1:]
    )
    assert pruned.messages == exhaustive.messages
    assert pruned.decisions == exhaustive.decisions
    assert pruned.report.work.new_windows > 20
    assert len(pruned.decisions) > 10


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("search", SEARCHES[:2])
def test_turn_by_turn_is_as_at_once(
    profile: Profile,
    search: SearchName,
    recorded: tuple[WindowedRun, Embedding],
    minilm: RememberedEncoder,
    count_tokens: Callable[[str], int],
) -> None:
    messages = recorded[0].run.messages[: PART[profile]]
    at_once = Compactor(config(profile, search), count_tokens, minilm).compact(messages, use_memo=False)
    compactor = Compactor(config(profile, search), count_tokens, minilm)
    for stop in (9, 18, 20, 12, len(messages)):  # the fourth is a fork
        turn = compactor.compact(messages[:stop])
        assert turn.messages == at_once.messages[:stop]
    assert turn.decisions == at_once.decisions


def test_under_a_banded_search_no_window_is_encoded_in_a_way_that_is_not_canonical() -> None:
    bag = TwoPassBag()
    pool = EncoderPool(bag, noisy_pass(bag.noise))
    messages = [{"role": "tool", "content": f"read the file {word}\n" * 20} for word in ("one", "two")]
    try:
        Compactor(config("paper", "banded"), len, pool).compact(messages)
        assert bag.canonical and not bag.fast
        Compactor(config("paper", "exhaustive"), len, pool).compact(messages, salt="other")
        assert bag.fast
    finally:
        pool.close()


def test_an_encoder_without_a_basis_cannot_be_searched_pruned(encoder: BatchEncoder) -> None:
    assert traits_of(encoder).basis is not None
    with pytest.raises(OptionError, match="search: 'pruned' is not allowed; allowed: exhaustive, banded; pruned needs"):
        Compactor(CompactorConfig(profile="paper", search="pruned"), len, TwoPassBag())
