"""What two_pass_speed.py measures, in the process that it starts for each kind of CPU; ends in one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from corpus_data import corpus_runs, observed, served_tokens
from determinism_encodings import RUNS
from pooled import pool_of, tokens_of
from programs import parser_of

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder, Encoded
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.tokens import encodable
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.types import Compaction
from lam_vllm.windows import fixed_windows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_Result = TypeVar("_Result")

ROUNDS = 5
SAMPLE = (RUNS[1], *RUNS[3:])
"""Four of the six runs of determinism.py, some 20,000 tokens: without the two longest."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A run, and the texts of its windows in their order, each result windowed by itself."""

    run: Run
    windows: list[str]


class Spent(NamedTuple):
    """Seconds of one call: of the clock on the wall, and of CPU time, that of all threads together."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class TwoPass:
    """What one round did: windows encoded fast and again canonically, windows that L1 drops."""

    fast: int
    canonical: int
    dropped: int


def windowed(encoder: BatchEncoder, names: Sequence[str]) -> list[Windowed]:
    def windows(run: Run) -> list[str]:
        texts = observed(run.messages)
        cut = ((text, fixed_windows(text, encoder.token_offsets, encoder.window_tokens)) for text in texts)
        return [text[window.start : window.end] for text, found in cut for window in found]

    return [Windowed(run, windows(run)) for run in corpus_runs() if run.id in names]


def salt_of(run: Run, number: int) -> str:
    return f"{number} {run.id}"


def first_layer(windows: Sequence[str], pool: EncoderPool, salt: str) -> tuple[int, Encoded]:
    """How many windows L1 drops, as a request of the profile `paper` decides it, and what was encoded for that."""
    embeddings, retained, dropped = pool.embeddings(salt), RetainedWindows(pool.dimension), 0
    embeddings.prepare(windows)
    for text in windows:
        found = find_match(text, embeddings, retained, pool.threshold_cos)
        if found.match is None:
            retained.add(text, found.embedding, True)
        else:
            dropped += 1
    return dropped, embeddings.encoded


def two_pass(runs: Sequence[Windowed], pool: EncoderPool, number: int) -> TwoPass:
    found = [first_layer(each.windows, pool, salt_of(each.run, number)) for each in runs]
    fast, canonical = (sum(getattr(encoded, name) for _, encoded in found) for name in ("once", "again"))
    return TwoPass(fast, canonical, sum(dropped for dropped, _ in found))


def plain_model(encoder: BatchEncoder) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(packaged_folder()), device="cpu", local_files_only=True)
    special = model.tokenizer.num_special_tokens_to_add(pair=False)
    model.max_seq_length = encoder.window_tokens + special  # the package stops at 256 and would skip half of a window
    return model


def plain(model: SentenceTransformer, texts: list[str], threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    model.encode(texts, show_progress_bar=False)


def timed(work: Callable[[], _Result]) -> tuple[Spent, _Result]:
    wall, cpu = perf_counter(), process_time()
    result = work()
    return Spent(perf_counter() - wall, process_time() - cpu), result


def audit(runs: Sequence[Windowed], pool: EncoderPool, number: int, timed_round: TwoPass) -> int:
    """Decisions and messages that a canonical compaction of these runs has otherwise than what this round embedded."""
    compactor = Compactor(CompactorConfig(profile="paper"), served_tokens(), pool)
    differences = dropped = 0
    for each in runs:
        quick = compactor.compact(each.run.messages, salt=salt_of(each.run, number))
        canonical = compactor.compact(each.run.messages, canonical=True)
        assert not quick.report.work.encoder_calls, "its windows were to be those that were timed"
        dropped += sum(decision.layer == "l1" for decision in quick.decisions)
        differences += different(quick, canonical)
    assert dropped == timed_round.dropped, "what was timed was to be what the profile does"
    return differences


def different(one: Compaction, other: Compaction) -> int:
    messages = sum(1 for left, right in zip(one.messages, other.messages, strict=True) if left != right)
    return messages + len(set(one.decisions) ^ set(other.decisions))


def measure(rounds: int, names: Sequence[str], threads: int) -> dict[str, Any]:
    """The figures of this process."""
    encoder = load_encoder("minilm")
    fast, runs, model = measured_pass(encoder), windowed(encoder, names), plain_model(encoder)
    texts = [encodable(text) for each in runs for text in dict.fromkeys(each.windows)]
    tokens = tokens_of(encoder, texts)
    plain(model, texts[:1], threads)  # the first call of a thread sets it up
    with pool_of(encoder, fast, threads) as pool:
        fp32, ours = [], []
        for number in range(rounds):
            fp32.append(timed(lambda: plain(model, texts, threads))[0])
            spent, last = timed(lambda: two_pass(runs, pool, number))  # noqa: B023 - called at once
            ours.append(spent)
        assert last.fast == len(texts), "both sides were to encode the same texts"
        differences = audit(runs, pool, rounds - 1, last)
    return {
        "pass": fast.way.label,
        "guard_band": round(fast.guard_band, 5),
        "windows": len(texts),
        "tokens": tokens,
        "canonical": last.canonical,
        "dropped": last.dropped,
        "two_pass_tokens_per_second": round(tokens / median(spent.wall for spent in ours)),
        "fp32_tokens_per_second": round(tokens / median(spent.wall for spent in fp32)),
        "two_pass_over_fp32": round(median(a.wall / b.wall for a, b in zip(fp32, ours, strict=True)), 3),
        "two_pass_over_fp32_cpu": round(median(a.cpu / b.cpu for a, b in zip(fp32, ours, strict=True)), 3),
        "canonical_share": round(last.canonical / last.fast, 4),
        "audit_differences": differences,
    }


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    print(json.dumps(measure(1 if asked.quick else ROUNDS, SAMPLE[-1:] if asked.quick else SAMPLE, asked.threads)))


if __name__ == "__main__":
    main()
