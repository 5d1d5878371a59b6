"""How long a compaction keeps other threads, so also a server's event loop, from running.

One thread wakes up every millisecond while another compacts with the profile `exact`, the served model's tokenizer and
the switch interval that the plugin sets. The longest time between two wake-ups, less that millisecond, is what a
request elsewhere in the process would have waited. What the machine does by itself is measured with nobody compacting.

Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from threading import Event, Thread

from corpus_data import corpus_runs, machine, observed, served_tokens

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.serving.plugin import SWITCH_SECONDS
from lam_vllm.types import Message

TICK_SECONDS = 0.001
REPEATS = 5
LONG_TEXT_CHARACTERS = 1_000_000
IDLE = "nobody compacts"


@dataclass(frozen=True, slots=True)
class Stall:
    """Milliseconds: what the compaction took, and the longest stall in it; medians, and the worst of all repeats."""

    work_ms: float
    longest_ms: float
    worst_ms: float


def longest_stall(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that `work` takes in this thread, and the longest that a ticking thread is kept waiting meanwhile."""
    started, ended = Event(), Event()
    stalls = []

    def tick() -> None:
        before = time.perf_counter()
        while not ended.is_set():
            time.sleep(TICK_SECONDS)
            now = time.perf_counter()
            stalls.append(now - before - TICK_SECONDS)
            before = now
            started.set()

    ticker = Thread(target=tick)
    ticker.start()
    started.wait()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    ended.set()
    ticker.join()
    return seconds, max(stalls)


def measure(messages: list[Message] | None) -> Stall:
    """The stalls of compacting these messages with nothing known; None: of a second in which nobody compacts."""
    measured = []
    for _ in range(REPEATS):
        compactor = Compactor(CompactorConfig(profile="exact"), served_tokens())
        work = (lambda: time.sleep(1)) if messages is None else lambda: compactor.compact(messages)  # noqa: B023
        measured.append(longest_stall(work))
    work_seconds, stalls = zip(*measured, strict=True)
    return Stall(*(round(1e3 * seconds, 2) for seconds in (median(work_seconds), median(stalls), max(stalls))))


def printed_twice(text: str) -> list[Message]:
    """A conversation in which a tool prints the text two times."""
    messages: list[Message] = [{"role": "assistant", "content": "cat"}, {"role": "tool", "content": text}]
    return 2 * messages


def main() -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    runs = corpus_runs()
    largest = max(runs, key=lambda run: sum(map(len, observed(run.messages))))
    text = "\n".join(text for run in runs for text in observed(run.messages))[:LONG_TEXT_CHARACTERS]
    workloads = {
        IDLE: None,
        largest.id: list(largest.messages),
        "1 MB in lines, twice": printed_twice(text),
        "1 MB in one line, twice": printed_twice(text.replace("\n", " ")),
    }
    print(machine())
    print(f"{'workload':<38} {'compaction ms':>14} {'longest stall ms':>17} {'worst of ' + str(REPEATS):>10}")
    figures = {}
    for label, messages in workloads.items():
        stall = measure(messages)
        print(f"{label:<38} {stall.work_ms:>14.1f} {stall.longest_ms:>17.2f} {stall.worst_ms:>10.2f}")
        figures[label] = asdict(stall)
    print(json.dumps({"machine": machine(), **figures}))


if __name__ == "__main__":
    main()
