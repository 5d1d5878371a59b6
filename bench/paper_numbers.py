"""Removal of the paper's two layers on the recorded SWE-smith runs: L0 alone, L1 alone, L1 then L0.

Tokens are the encoder's wordpieces, over all tool observations of the eight `swesmith_samples` runs together. L1 cuts
each observation into fixed windows and drops one that lies within delta of a retained window of the same run; net
charges 14 tokens for each dropped window. L0 then drops lines that are byte-equal to an earlier kept line of the run.
Embeddings of equal texts are computed once. Prints a table, and the same figures as one line of JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache

from corpus_data import corpus_runs, machine, observed

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.windows import fixed_windows

SOURCE = "swesmith_samples"
THRESHOLD_COS = 0.95
STUB_TOKENS = 14


@dataclass
class Tally:
    """Figures of one run, or the sum of several."""

    observation_tokens: int = 0
    windows: int = 0
    dropped_windows: int = 0
    l0_tokens: int = 0
    l1_tokens: int = 0
    l0_after_l1_tokens: int = 0
    boundary_pairs: int = 0
    delta_hat: float = 0.0

    def add(self, other: Tally) -> None:
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(ours, theirs) if field.name == "delta_hat" else ours + theirs)

    def shares(self) -> dict[str, float]:
        """Removed share of observation tokens, in percent."""
        stubs, both = self.dropped_windows * STUB_TOKENS, self.l1_tokens + self.l0_after_l1_tokens
        removed = {
            "l0": self.l0_tokens,
            "l1_gross": self.l1_tokens,
            "l1_net": self.l1_tokens - stubs,
            "l1_l0_gross": both,
            "l1_l0_net": both - stubs,
        }
        return {name: round(100 * tokens / max(1, self.observation_tokens), 2) for name, tokens in removed.items()}


def repeated_line_tokens(texts: Iterable[str], encoder: Encoder) -> int:
    """Tokens of the lines that are byte-equal to an earlier line of these texts."""
    seen: set[str] = set()
    tokens = 0
    for text in texts:
        for line in text.split("\n"):
            if line in seen:
                tokens += len(encoder.token_offsets(line))
            seen.add(line)
    return tokens


def measure(texts: list[str], encoder: Encoder) -> Tally:
    """One run under L1, under L0, and under L0 after L1."""
    encode = cache(encoder.encode)
    retained = RetainedWindows(encoder.dimension)
    tally = Tally(l0_tokens=repeated_line_tokens(texts, encoder))
    residuals = []
    for text in texts:
        kept = []
        for window in fixed_windows(text, encoder.token_offsets, encoder.window_tokens):
            piece = text[window.start : window.end]
            found = find_match(piece, encode, retained, THRESHOLD_COS)
            tally.windows += 1
            tally.observation_tokens += window.tokens
            tally.boundary_pairs += found.boundary_pairs
            if found.match is None:
                retained.add(piece, found.embedding, eligible=True)
                kept.append(piece)
            else:
                tally.dropped_windows += 1
                tally.l1_tokens += window.tokens
                tally.delta_hat = max(tally.delta_hat, found.match.distance)
        residuals.append("".join(kept))
    tally.l0_after_l1_tokens = repeated_line_tokens(residuals, encoder)
    return tally


def main() -> None:
    encoder = load_encoder("minilm", THRESHOLD_COS)
    total, began = Tally(), time.perf_counter()
    runs = [observed(run.messages) for run in corpus_runs([SOURCE])]
    print(machine())
    columns = ("l0", "l1_gross", "l1_net", "l1_l0_gross", "l1_l0_net")
    print(f"{'run':>5} {'tokens':>8} {'windows':>8} {'dropped':>8} " + " ".join(f"{name:>12}" for name in columns))
    for number, texts in enumerate([*runs, None], start=1):
        tally = total if texts is None else measure(texts, encoder)
        shares = " ".join(f"{tally.shares()[name]:>11.2f}%" for name in columns)
        label = "all" if texts is None else str(number)
        print(f"{label:>5} {tally.observation_tokens:>8} {tally.windows:>8} {tally.dropped_windows:>8} {shares}")
        if texts is not None:
            total.add(tally)
    figures = {
        "machine": machine(),
        "source": SOURCE,
        "runs": len(runs),
        "threshold_cos": THRESHOLD_COS,
        "stub_tokens": STUB_TOKENS,
    }
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({**figures, **asdict(total), **total.shares(), "encoder": encoder.name, "seconds": seconds}))


if __name__ == "__main__":
    main()
