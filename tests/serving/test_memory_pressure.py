"""Memos that hold next to nothing cost time and no byte of an answer."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from lam_vllm import compactors
from lam_vllm.config import make_config
from lam_vllm.encoders.pool import MEMO_BYTES, EncoderPool
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Message
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.serving.fakes import Server

NOISE = 0.01
ENTRIES = 5
STEP = 4


def turns(runs: list[Run]) -> list[list[Message]]:
    """Agents at work at the same time: a turn of each, then the next one of each."""
    ends = range(STEP, max(len(run.messages) for run in runs), STEP)
    return [list(run.messages[:end]) for end in ends for run in runs if end <= len(run.messages)]


@pytest.mark.parametrize("profile", ["guarded", "paper"])
def test_memory_pressure_evicts_and_changes_no_answer(
    profile: str, six_runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(pool: EncoderPool) -> list[list[Message]]:
        with closing(pool):
            server = Server(config=make_config({"profile": profile}), encoder=pool)
            return [asyncio.run(server.ask(turn)) for turn in asked]

    asked, bag = turns(six_runs[:3]), TwoPassBag(NOISE)
    roomy = EncoderPool(bag, noisy_pass(NOISE), 1, MEMO_BYTES)
    expected = answers(roomy)
    assert roomy.memo.counts.evicted == 0
    entry_bytes = roomy.memo.nbytes // roomy.memo.counts.misses

    monkeypatch.setattr(compactors, "MEMO_BYTES", 1)
    tight = EncoderPool(bag, noisy_pass(NOISE), 1, ENTRIES * entry_bytes)
    assert answers(tight) == expected
    assert tight.memo.counts.evicted > 0.9 * tight.memo.counts.misses
    assert tight.memo.counts.misses > roomy.memo.counts.misses
    tight.memo.check_integrity()
    assert any(answer is not turn for answer, turn in zip(expected, asked, strict=True))
