"""Whether two-pass encoding decides as canonical embeddings do, over every way to make embeddings, on recorded runs.

Each run is compacted with profiles `guarded` and `paper` through `EncoderPool` for every batch, thread count and
precision, then with 16 requests at once and with messages that arrive in groups; each answer (messages and decisions)
is named by a digest and compared with that of canonical embeddings alone. The same under `ATEN_CPU_CAPABILITY=avx2`,
in a process of its own. Also measured: how far a fast cosine lies from the canonical one over all pairs of windows of a
run, beside the shipped guard band, and how many windows it takes canonical embeddings to decide.
Prints tables, ends in one line of JSON (`| tail -n 1 > bench/results/two_pass.json` keeps it), and fails where anything
differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import numpy as np
from corpus_data import corpus_runs, machine, served_tokens
from remembered import RememberedEncoder
from two_pass_figures import Way, agrees, print_tables

from lam_vllm import Compaction, Compactor, CompactorConfig
from lam_vllm.config import Profile
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder, Encoder, EncoderLike, Pass
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass, encode_all
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Embedding, Message
from lam_vllm.windows import fixed_windows, line_windows

PROFILES: tuple[Profile, ...] = ("guarded", "paper")
BATCHES = (1, 2, 7, 16, 32, 64)
THREADS = (1, 2)
AT_ONCE = 16
GROUPS = (1, 3, 7)
OLDER_CPU = {"ATEN_CPU_CAPABILITY": "avx2"}
CUTS = {"guarded": line_windows, "paper": fixed_windows}


class Canonical(EncoderLike):
    """The encoder, its canonical embeddings out of the benchmarks' file; safe to use from several threads."""

    def __init__(self, encoder: BatchEncoder) -> None:
        super().__init__(encoder)
        self.passes, self.encode_batch = encoder.passes, encoder.encode_batch
        self._kept = ThreadPoolExecutor(1)  # sqlite answers only the thread that opened the file
        self._remembered = self._kept.submit(RememberedEncoder, encoder).result()

    def encode(self, text: str) -> Embedding:
        return self._kept.submit(self._remembered.encode, text).result()


class Bench:
    """The encoder, the runs, and their canonical answers."""

    def __init__(self, runs: Sequence[Run]) -> None:
        encoder = load_encoder("minilm")
        self.encoder = Canonical(encoder)
        self.shipped = measured_pass(encoder)
        self.runs = runs
        self.count_tokens = served_tokens()
        self.canonical = {key: one for key, one, _ in self.answers(self.encoder)}

    def answers(self, encoder: Encoder, group: int = 0) -> Iterator[tuple[tuple[str, Profile], Compaction, int]]:
        """By run and profile: the answer, and how many windows were encoded canonically."""
        for profile in PROFILES:
            compactor = Compactor(CompactorConfig(profile=profile), self.count_tokens, encoder)
            for run in self.runs:
                steps = [grown(compactor, run.messages[:end], run.id) for end in ends(run.messages, group)]
                yield (run.id, profile), steps[-1], sum(step.report.work.canonical_calls for step in steps)

    @contextmanager
    def pool(self, way: Way) -> Iterator[EncoderPool]:
        """A pool that encodes in this way, under the band that ships."""
        fast = Pass(f"{way.precision}, batches of {way.batch}", way.precision, way.batch)
        band = self.shipped.guard_band or 0.01
        pool = EncoderPool(self.encoder, FastPass(fast, band, {}, "asked for"), way.threads)
        try:
            yield pool
        finally:
            pool.close()

    def line(self, way: Way) -> dict[str, Any]:
        """One row: a digest of all answers, how many are other ones than canonical embeddings give, and the work."""
        with self.pool(way) as pool:
            found = (
                self._at_once(pool) if way.at_once > 1 else {key: one for key, one, _ in self.answers(pool, way.group)}
            )
            counts = pool.memo.counts
        differing = [key for key, answer in found.items() if name(answer) != name(self.canonical[key])]
        how = {field: getattr(way, field) for field in Way.__slots__}
        return {**how, "digest": digest(found), "differing": len(differing), "encoded": counts.misses}

    def _at_once(self, pool: EncoderPool) -> dict[tuple[str, Profile], Compaction]:
        """The answers by requests that run together, each twice and under one of two salts."""
        compactors = {
            profile: Compactor(CompactorConfig(profile=profile), self.count_tokens, pool) for profile in PROFILES
        }
        asked = [(run, profile, salt) for run in self.runs for profile in PROFILES for salt in ("", "other")]
        with ThreadPoolExecutor(AT_ONCE) as requests:
            begun = [
                (run.id, profile, requests.submit(compactors[profile].compact, run.messages, salt=salt))
                for run, profile, salt in asked
            ]
        made: dict[tuple[str, Profile], Compaction] = {}
        for run_id, profile, request in begun:
            answer = request.result()
            if name(made.setdefault((run_id, profile), answer)) != name(answer):
                made[run_id, profile] = Compaction([], (), answer.report)  # two answers: neither is the canonical one
        return made

    def audit(self) -> dict[str, Any]:
        """What the production audit finds: both passes beside canonical ones alone, as it ships; and what that took."""
        fast = self.shipped
        differences = windows = canonical = 0
        pool = EncoderPool(self.encoder, fast)
        for profile in PROFILES:
            compactor = Compactor(CompactorConfig(profile=profile), self.count_tokens, pool)
            for run in self.runs:
                two_pass = compactor.compact(run.messages, salt=run.id)
                alone = compactor.compact(run.messages, salt=run.id, canonical=True)
                differences += name(two_pass) != name(alone)
                work = two_pass.report.work
                windows += work.encoder_calls + work.remembered
                canonical += work.canonical_calls
        pool.close()
        share = canonical / windows if windows else 0.0
        return {"audit_differences": differences, "audit_windows": windows, "canonical_share": share}

    def differences(self) -> dict[str, Any]:
        """The largest |fast - canonical| cosine over all pairs of each run's windows, and who is near the threshold."""
        largest, near, windows, band = 0.0, 0, 0, self.shipped.guard_band
        for run in self.runs:
            for cut in CUTS.values():
                texts = list(dict.fromkeys(windows_of(run, self.encoder, cut)))
                if not texts:
                    continue
                exact = np.stack([self.encoder.encode(text) for text in texts]).astype(np.float64)
                fast = encode_all(self.encoder, self.shipped.way, texts).astype(np.float64)
                cosines = exact @ exact.T
                largest = max(largest, *(float(np.abs(fast @ to.T - cosines).max()) for to in (fast, exact)))
                close = np.abs(fast @ fast.T - self.encoder.threshold_cos) <= band
                near += int((close & ~np.eye(len(texts), dtype=np.bool_)).any(axis=1).sum())
                windows += len(texts)
        share = near / windows if windows else 0.0
        return {"windows": windows, "largest_difference_cos": largest, "near_share": share}


def grown(compactor: Compactor, messages: Sequence[Message], salt: str) -> Compaction:
    return compactor.compact(list(messages), salt=salt)


def ends(messages: Sequence[Message], group: int) -> list[int]:
    """Where each arrival ends, when so many messages come at a time (0: all)."""
    whole = len(messages)
    return [*range(group, whole, group), whole] if group else [whole]


def windows_of(run: Run, encoder: Encoder, cut: Callable[..., Any]) -> Iterator[str]:
    for message in run.messages:
        if message["role"] == "tool":
            text = str(message["content"])
            for window in cut(text, encoder.token_offsets, encoder.window_tokens):
                yield text[window.start : window.end]


def name(answer: Compaction) -> str:
    """Names the bytes and the decisions of an answer."""
    data = json.dumps([answer.messages, answer.decisions], ensure_ascii=True).encode()
    return hashlib.sha256(data).hexdigest()


def digest(answers: dict[tuple[str, Profile], Compaction]) -> str:
    """16 hex digits that name all answers, whatever order they were made in."""
    data = json.dumps(sorted((*key, name(answer)) for key, answer in answers.items())).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def ways(precisions: Sequence[str]) -> Iterator[Way]:
    for precision in precisions:
        for threads in THREADS:
            yield from (Way(precision, batch, threads) for batch in BATCHES)
        yield Way(precision, 8, 2, at_once=AT_ONCE)
        yield from (Way(precision, 8, group=group) for group in GROUPS)


def deletions(bench: Bench) -> dict[str, str]:
    """The digest of what canonical embeddings delete, and of what both passes do, on this process's CPU."""
    quickest = bench.encoder.passes()[-1].precision
    with bench.pool(Way(quickest, 8)) as pool:
        two_pass = {key: one for key, one, _ in bench.answers(pool)}
    return {"canonical": digest(bench.canonical), "two_pass": digest(two_pass)}


def elsewhere(runs: Sequence[Run]) -> dict[str, str]:
    """`deletions` in a process with other vector units."""
    command = [sys.executable, __file__, "--deletions", "--ids", *(run.id for run in runs)]
    done = subprocess.run(command, env={**os.environ, **OLDER_CPU}, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(runs: Sequence[Run], audited: Sequence[Run], minutes: float) -> dict[str, Any]:
    whole = Bench(audited)
    figures = {"audited_runs": len(audited), **whole.audit(), **whole.differences()}
    print(json.dumps(figures), file=sys.stderr)
    began, bench, lines, left_out = monotonic(), Bench(runs), [], 0
    precisions = list(dict.fromkeys(way.precision for way in bench.encoder.passes()))
    for way in ways(precisions):
        if monotonic() - began > 60 * minutes:
            left_out += 1
            continue
        lines.append(bench.line(way))
        print(json.dumps(lines[-1]), file=sys.stderr)
    return {
        "setup": machine(),
        "runs": len(runs),
        "pass": bench.shipped.way.label,
        "guard_band_cos": bench.shipped.guard_band,
        **figures,
        "ways": lines,
        "ways_left_out": left_out,
        "canonical_digest": digest(bench.canonical),
        "digests": len({digest(bench.canonical), *(line["digest"] for line in lines)}),
        "avx2": elsewhere(runs),
    }


def chosen(count: int | None, ids: Sequence[str] | None) -> list[Run]:
    """Runs by id, or the first so many of the shortest (None: all)."""
    runs = corpus_runs()
    if ids:
        return [run for run in runs if run.id in ids]
    return sorted(runs, key=lambda run: sum(len(str(message["content"])) for message in run.messages))[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, help="every way over the so many shortest runs (default: all)")
    parser.add_argument("--audited", type=int, help="audit and differences over the so many shortest (default: all)")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no way after so many minutes of ways")
    parser.add_argument("--ids", nargs="+", help="these runs alone")
    parser.add_argument("--deletions", action="store_true", help="print digests of what is deleted, and nothing else")
    asked = parser.parse_args()
    runs = chosen(asked.runs, asked.ids)
    if asked.deletions:
        print(json.dumps(deletions(Bench(runs))))
        return 0
    figures = measure(runs, chosen(asked.audited, asked.ids), asked.minutes)
    print_tables(figures)
    print(json.dumps(figures))
    return 0 if agrees(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
