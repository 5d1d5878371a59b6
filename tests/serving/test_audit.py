"""The audit finds what a guard band that is too narrow let through, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords
from tests.serving.fakes import Server, agent_messages

DIFFERENT = agent_messages("red green blue " * 12, "one two three four " * 9)
FAST = Pass("nothing like it", "bf16", 1)


class Careless(BagOfWords):
    """Its quick way takes all texts for the same one."""

    def passes(self) -> Sequence[Pass]:
        return [FAST]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        return np.stack([self.encode("the same") for _ in texts])


def audited(guard_band: float, audit_rate: float) -> tuple[bool, float, float]:
    """Whether the second text was taken for the first; violations and defects that were counted."""
    pool = EncoderPool(Careless(), FastPass(FAST, guard_band, {}, "for the test"))
    with closing(pool):
        server = Server(config=CompactorConfig(profile="paper"), encoder=pool, audit_rate=audit_rate)
        rendered = asyncio.run(server.ask(DIFFERENT))
    counts = server.service.metrics.counts
    return rendered != DIFFERENT, sum(counts("guard_band_violations").values()), counts("prefix_breaks")["defect"]


def test_a_fast_pass_that_decides_otherwise_is_counted_as_such() -> None:
    assert audited(guard_band=1e-4, audit_rate=1.0) == (True, 1.0, 0.0)


def test_a_guard_band_that_holds_leaves_nothing_to_find() -> None:
    assert audited(guard_band=1.0, audit_rate=1.0) == (False, 0.0, 0.0)


def test_no_request_is_audited_at_rate_zero() -> None:
    assert audited(guard_band=1e-4, audit_rate=0.0) == (True, 0.0, 0.0)
