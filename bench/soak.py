"""Many long conversations on one server with small caps: what breaks, what is lost, and whether memory grows.

A real vLLM serves a model that costs next to nothing (random weights, SmolLM2's words), the profile is `exact`.
Conversations of recorded tool results are sent by several clients at once, every turn with the whole history, some
twice; some fork at a random turn and go on in both ways, and in some the client edits an earlier message. The engine
answers a turn with one token (--rendered: so many of a hundred requests are only rendered). At the end of each way of a
conversation a dry run names the texts that were removed; they are looked up at once, and of those that fit the
store's cap some are looked up again later.

Wrong are: a prompt that does not begin with that of the turn before, one that is another when it is sent again, a
cached prefix broken by the plugin's defect, a text that is gone although the cap has room, and resident memory (all
processes of the server) that grows by 5% or more from 20% of the run to its end.

Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from corpus_data import ROOT, machine
from soak_memory import END, SETTLED, MemoryWatch
from soak_model import CONTEXT_TOKENS, make_tiny_model
from stored import markdown
from vllm_server import ServerProcess, serve

sys.path.append(str(ROOT))  # the conversations are those of the tests

from soak_shelf import Shelf

from tests.server.books import Books, books
from tests.server.soaking import is_found, play, steps
from tests.server.steady import steady_client

MODEL = "tiny"
MOST_GROWTH = 0.05
LATER = 3
"""Texts that each conversation looks up again of those before it."""
ARGUMENTS = (
    f"--served-model-name={MODEL}",
    f"--max-model-len={CONTEXT_TOKENS}",
    "--gpu-memory-utilization=0.4",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--num-gpu-blocks-override=1024",  # all of them are touched before the run has settled
    "--enforce-eager",
    "--enable-scale-out",  # the render routes
    "--lam-profile=exact",
)
Figures: TypeAlias = dict[str, Any]


def soak(server: ServerProcess, asked: argparse.Namespace) -> Figures:
    """All conversations, and what came of them."""
    watch, shelf = MemoryWatch(server, asked.conversations), Shelf(asked.store_bytes, random.Random(asked.seed))
    counts: Counter[str] = Counter()
    faults: list[str] = []
    began = time.perf_counter()
    with (
        steady_client(server.url) as client,
        ThreadPoolExecutor(asked.clients) as pool,
    ):
        for counted, wrong in pool.map(_conversation(client, shelf, asked), range(asked.conversations)):
            counts.update(counted)
            faults += wrong
            watch.one_more()
        after = books(client)
        breaks = client.get("/v1/lam/status").json()["prefix_breaks"]
    seconds = time.perf_counter() - began
    return {
        "machine": machine(),
        **vars(asked),
        **counts,
        "seconds": round(seconds),
        "requests_per_second": round(counts["requests"] / seconds, 1),
        "prefix_breaks": breaks,
        "faults": faults,
        **_memory(watch),
        "after": asdict(after),
        "holds": _holds(counts, faults, after, watch, asked),
    }


def _conversation(
    client: httpx.Client, shelf: Shelf, asked: argparse.Namespace
) -> Callable[[int], tuple[Counter[str], list[str]]]:
    """What sends one conversation and looks up: counts, and what was wrong."""

    def one(number: int) -> tuple[Counter[str], list[str]]:
        draw = random.Random(f"{asked.seed}/{number}")
        plan = list(steps(number, asked.turns, asked.seed))
        generated = [draw.random() >= asked.rendered / 100 for _ in plan]
        played = play(client, MODEL, number, plan, generated)
        counts = Counter(step.kind for step in plan) + Counter(requests=played.requests, generated=played.generated)
        for leaf in played.removed:
            shelf.put(leaf)
        recent, older = shelf.some(LATER)
        expected = [*recent, *(each for leaf in played.removed for each in leaf)]
        counts["looked_up"] += len(expected)
        counts["lost"] += sum(not is_found(client, each) for each in expected)
        counts["looked_up_past_the_cap"] += len(older)
        counts["gone_past_the_cap"] += sum(not is_found(client, each) for each in older)
        return counts, played.faults

    return one


def _memory(watch: MemoryWatch) -> Figures:
    megabytes = {percent: round(held / 1e6, 1) for percent, held in watch.bytes_at.items()}
    parts = {
        percent: {name: round(held / 1e6, 1) for name, held in watch.by_process[percent].items()}
        for percent in (SETTLED, END)
    }
    return {"resident_mb": megabytes, "growth": round(watch.growth, 4), "resident_mb_by_process": parts}


def _holds(
    counts: Counter[str], faults: list[str], after: Books, watch: MemoryWatch, asked: argparse.Namespace
) -> dict[str, bool]:
    """What must be true in the end, by name."""
    return {
        "no_defect": after.defects == 0 and not faults,
        "none_failed_open": after.failed_open == 0,
        "none_lost": counts["lost"] == 0,
        "memory": watch.growth < MOST_GROWTH,
        "caps": after.memo_bytes <= asked.memo_bytes and after.store_bytes <= asked.store_bytes,
    }


def table(figures: Figures) -> str:
    held = figures["resident_mb"]
    rows = [
        ("conversations, turns", f"{figures['conversations']:,} of {figures['turns']}"),
        ("requests, of them answered by the engine", f"{figures['requests']:,}, {figures['generated']:,}"),
        (
            "retries, turns of forks, edits",
            ", ".join(f"{figures.get(kind, 0):,}" for kind in ("retry", "fork", "edit")),
        ),
        (
            "prefix breaks: defect, client changed",
            ", ".join(_break(figures, cause) for cause in ("defect", "client_changed")),
        ),
        ("prompts that were not what they had to be", str(len(figures["faults"]))),
        ("look-ups within the cap, lost", f"{figures['looked_up']:,}, {figures['lost']:,}"),
        ("look-ups past the cap, gone", f"{figures['looked_up_past_the_cap']:,}, {figures['gone_past_the_cap']:,}"),
        (
            f"resident MB at {SETTLED}% and at {END}%, growth",
            f"{held[SETTLED]:,}, {held[END]:,}, {figures['growth']:.2%}",
        ),
        ("requests a second", f"{figures['requests_per_second']:,}"),
    ]
    return markdown(("", "figure"), rows)


def _break(figures: Figures, cause: str) -> str:
    return f"{figures['prefix_breaks'][cause]:,.0f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=2_000, help="at least 100 (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=20, help="of each (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=4, help="at once (default: %(default)s)")
    parser.add_argument("--rendered", type=int, default=0, help="of a hundred requests (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of all that is drawn")
    parser.add_argument("--memo-bytes", type=int, default=8_000_000, help="cap of the memo (default: %(default)s)")
    parser.add_argument("--store-bytes", type=int, default=4_000_000, help="cap of the store (default: %(default)s)")
    parser.add_argument("--store-url", help="as --lam-store-url (default: memory)")
    return parser.parse_args()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped then too
    asked = arguments()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"soak: model and log are in {folder}", file=sys.stderr)
    flags = [f"--lam-memo-bytes={asked.memo_bytes}", f"--lam-store-bytes={asked.store_bytes}"]
    if asked.store_url:
        flags.append(f"--lam-store-url={asked.store_url}")
    model = make_tiny_model(folder / "model")
    with serve(model, *ARGUMENTS, *flags, log=folder / "server.log") as server:
        figures = soak(server, asked)
    print(figures["machine"])
    print(table(figures))
    print(json.dumps(figures))
    return 0 if all(figures["holds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
