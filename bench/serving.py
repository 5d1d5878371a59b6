"""A served model and the compactor on one machine: what each costs the other, in the layout of the paper's table 9.

A real vLLM server on the CPU for every number of compactor threads (0: vLLM without the plugin). Turns of recorded
agents arrive by a Poisson process with a fixed seed and do not wait for answers: the prompt behind a tool result, at
most --prompt-tokens long, answered with exactly --output-tokens. Conversations take turns, each with a cache salt of
its own; the turn that opens one comes before the load and is not measured. In warmed loads the client posts the
messages to /v1/lam/warm when the tool result is known, --think seconds before the turn (another tool still runs, or
somebody has to agree). Then the same turns go through the compactor alone, one after the other, on the idle server.

Choose a rate that the engine sustains by itself: then the load without a compactor has little left to do when its last
turn arrives (`drain_seconds`). Engine, API server, compactor and this client share the machine's cores, and the plugin
shortens prompts: times with it hold what it costs and what it saves.

Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from corpus_data import ROOT, SERVED_MODEL, SOURCES, corpus_runs, machine, served_tokens
from serving_client import Connection
from serving_figures import compactor_figures, server_figures, warm_figures
from serving_load import Load, Sent, alone, open_conversations, under_load
from serving_placement import PLACEMENTS, Placement, memory_nodes, place
from serving_tables import serving_table
from serving_turns import AT_A_TIME, Traffic, arrivals, recorded_traffic
from vllm_server import ServerProcess, serve

from lam_vllm.errors import LamError, OptionError

ENCODER = ROOT / ".models" / "minilm"
ARGUMENTS = (
    "--served-model-name=smollm2",
    "--max-model-len=8192",
    "--gpu-memory-utilization=0.4",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--enforce-eager",
)
FIRST_SOURCES = ("swesmith_samples", "sweagent_demos")
"""By default: those with tool results that are worth encoding in many turns that fit."""
Figures: TypeAlias = dict[str, Any]


def served_arms(asked: argparse.Namespace, threads: int, placement: Placement, traffic: Traffic) -> Iterator[Figures]:
    """The loads of one server with this many compactor threads (0: without the plugin), one after the other."""
    flags = [*ARGUMENTS, f"--api-server-count={asked.api_servers}"] if asked.api_servers > 1 else list(ARGUMENTS)
    if threads:
        flags += ["--lam-profile=guarded", f"--lam-encoder={ENCODER}", f"--lam-threads={threads}", *placement.flags]
    with tempfile.NamedTemporaryFile("w", prefix=f"serving-{threads}-", suffix=".log", delete=False) as log:
        pass
    around = placement.environment
    with serve(SERVED_MODEL, *flags, log=Path(log.name), environment=around, plugin=threads > 0) as server:
        load = Load(server.url, Connection(server.url).model(), "plain", asked.output_tokens, None, asked.reconnect)
        if threads in asked.threads:
            yield arm(server, load, threads, traffic)
        if threads in asked.warm:
            yield arm(server, replace(load, name="warmed", think_seconds=asked.think), threads, traffic)


def arm(server: ServerProcess, load: Load, threads: int, traffic: Traffic) -> Figures:
    """One load's figures, the compactor's speed alone among them."""
    watch = Connection(server.url)
    open_conversations(load, traffic.openings)
    before, cpu, began = watch.counts(), server.cpu_seconds(), time.perf_counter()
    sent = under_load(load, traffic.turns)
    cores = (server.cpu_seconds() - cpu) / (time.perf_counter() - began)
    counts = watch.counts()
    report_failures(sent)
    figures = {"threads": threads, "warm": load.think_seconds is not None, **server_figures(sent)}
    figures |= {"cores_busy": round(cores, 2), "worker_restarts": counts.restarts - before.restarts}
    if threads:
        calls = alone(replace(load, name=f"{load.name}-alone"), traffic)
        figures |= compactor_figures(sent, calls) | (warm_figures(sent) if figures["warm"] else {})
        figures |= {"windows": dict(counts.windows - before.windows), "encoder": watch.encoder()["fast_pass"]}
    return figures


def report_failures(sent: Sequence[Sent]) -> None:
    for error in sorted({one.answer.error or (one.warmed and one.warmed.error) or "" for one in sent} - {""}):
        print(f"serving: {error}", file=sys.stderr)


def measure(asked: argparse.Namespace) -> Figures:
    """All arms, and what they were measured with."""
    placement = place(asked.placement, memory_nodes())
    times = list(arrivals(asked.rate, asked.seconds, asked.seed, asked.think))
    if not times:
        raise OptionError("rate", asked.rate, f"so many a second that one arrives in {asked.seconds:g} seconds")
    traffic = recorded_traffic(corpus_runs(asked.source), times, asked.prompt_tokens, served_tokens())
    arms = []
    for threads in sorted({*asked.threads, *asked.warm}):
        for figures in served_arms(asked, threads, placement, traffic):
            print(f"serving: {threads} threads{', warm' * figures['warm']}: {figures}", file=sys.stderr)
            arms.append(figures)
    shares = [figures["hook_share_of_ttft"] for figures in arms if figures["warm"]]
    return {
        "setup": machine(),
        **{name: value for name, value in vars(asked).items() if name not in ("threads", "warm", "placement")},
        "conversations_at_a_time": AT_A_TIME,
        "placement": {"name": placement.name, "engine": placement.engine, "compactor": placement.compactor},
        "placement_note": placement.note,
        "arms": arms,
        "warm_share_of_ttft": max(shares, default=None),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="*", default=[0, 1, 2], help="compactor threads, an arm for each")
    parser.add_argument("--warm", type=int, nargs="*", default=[1, 2], help="threads of the arms with warmed turns")
    parser.add_argument("--rate", type=float, default=0.25, help="turns a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals in each arm (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the arrivals")
    parser.add_argument("--think", type=float, default=2.0, help="seconds from warm to turn (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=6000, help="longest prompt (default: %(default)s)")
    parser.add_argument("--output-tokens", type=int, default=24, help="of every answer (default: %(default)s)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="whose runs (may be repeated)")
    parser.add_argument("--placement", choices=PLACEMENTS, default="unrestricted")
    parser.add_argument("--api-servers", type=int, choices=(1, 2), default=1, help="API processes")
    parser.add_argument("--reconnect", action="store_true", help="a new connection for every call")
    asked = parser.parse_args()
    asked.source = asked.source or list(FIRST_SOURCES)
    return asked


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a server is stopped then too
    try:
        figures = measure(arguments())
    except LamError as error:
        print(f"serving: {error}", file=sys.stderr)
        return 2
    print(f"{figures['setup']}\nplacement {figures['placement']['name']}: {figures['placement_note']}")
    print(serving_table(figures))
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
