"""The paper's rule on the 8 SWE-smith runs, against figures measured apart from this code (MiniLM, t = 0.95)."""

from __future__ import annotations

import pytest

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run

STUB_TOKENS = 14


@pytest.fixture(scope="module")
def shares(encoder: Encoder, swesmith_runs: list[Run]) -> dict[str, float]:
    """Percent of wordpiece tokens of the observations, by layer."""

    def wordpieces(text: str) -> int:
        return len(encoder.token_offsets(text))

    both = Compactor(CompactorConfig(profile="paper"), wordpieces, encoder)
    lines_only = Compactor(CompactorConfig(profile="paper", max_windows=0), wordpieces, encoder)
    total = l0 = l1 = after = stubs = 0
    for run in swesmith_runs:
        total += sum(wordpieces(message["content"]) for message in run.messages if message["role"] == "tool")
        l0 += lines_only.compact(run.messages).report.removed_tokens["l0"]
        compaction = both.compact(run.messages)
        l1 += compaction.report.removed_tokens["l1"]
        after += compaction.report.removed_tokens["l0"]
        stubs += sum(decision.layer == "l1" for decision in compaction.decisions)
    cost = stubs * STUB_TOKENS
    tokens = {"L0": l0, "L1": l1, "L1 net": l1 - cost, "L1 -> L0": l1 + after, "L1 -> L0 net": l1 + after - cost}
    return {name: 100 * count / total for name, count in tokens.items()}


@pytest.mark.parametrize(
    ("layers", "expected"), [("L0", 13.9), ("L1", 14.0), ("L1 -> L0", 19.9), ("L1 net", 13.6), ("L1 -> L0 net", 19.6)]
)
def test_removal_is_within_a_point_of_what_was_measured(shares: dict[str, float], layers: str, expected: float) -> None:
    assert shares[layers] == pytest.approx(expected, abs=1.0)
