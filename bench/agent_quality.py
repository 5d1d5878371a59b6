"""What the plugin does to an agent's success, turns, tokens and second reads, on your own model and tasks.

`run` drives a small agent of its own (agent_loop.py) through a file of tasks, each `--repeats` times with the plugin
off and on in turn, and keeps every attempt in FOLDER/off.jsonl and FOLDER/on.jsonl:

    python bench/agent_quality.py run --url http://localhost:8000 --tasks tasks.jsonl --repeats 5 --out FOLDER

A task is a line of JSON: `id`, `prompt`, `files` to begin with, and `check`, a command that succeeds once it is solved
(see agent_tasks.jsonl). `--packaged` starts a server with the small model that is a package, to see the benchmark work.

`report` reads the recorded runs of any agent, in any form that `lam-vllm analyze` reads, one arm each:

    python bench/agent_quality.py report --off off/*.traj.json --on on/*.traj.json --judge 'python judge.py' \\
        --tokenizer MODEL

Point the agent at the server twice, once with the plugin off and once on, with the same tasks; run ids up to a `#` name
the task. `--judge` is a command that gets {"id", "messages"} on its input and exits with 0 for a success; without it
the runs' own `resolved` counts. Token counts are those that the runs hold under `usage`.

The re-read rate is the share of removed spans whose text the agent reads again within `--within` turns. What is
removed is computed from the recorded messages, which is what the server did: the arm `off` thus gives the rate at which
the agent reads such text again anyway, and the difference is what the references cause.

Prints a table and ends in one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from agent_attempts import read_attempts
from agent_loop import Model, attempt, read_tasks
from agent_report import figures, print_report
from corpus_data import SERVED_MODEL
from wording_server import cpu_server

from lam_vllm import Compactor, make_config
from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.live.client import Client

API_KEY = os.environ.get("OPENAI_API_KEY")
WITHIN_TURNS = 3
PACKAGED = "the packaged SmolLM2-135M"


def run_arms(asked: argparse.Namespace, url: str) -> str:
    """Every attempt, off and on in turn, streamed to the folder; what was asked, in words."""
    client = Client(url, API_KEY)
    name = asked.model or client.model()
    model = Model(client.url, name, API_KEY, asked.temperature, asked.max_tokens, asked.max_turns)
    on = json.dumps({"enabled": True, "profile": asked.profile, "observations": "tool+user"})
    asked.out.mkdir(parents=True, exist_ok=True)
    arms = {"off": asked.out / "off.jsonl", "on": asked.out / "on.jsonl"}
    for path in arms.values():
        path.write_text("", encoding="utf-8")
    for task in read_tasks(asked.tasks):
        for seed in range(asked.repeats):
            for arm, path in arms.items():
                run = attempt(task, model, "off" if arm == "off" else on, seed)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"source": arm, **run}) + "\n")
                print(f"{arm}: {run['id']}: {run['ended']}, solved: {run['resolved']}", flush=True)
    asked.off, asked.on = [arms["off"]], [arms["on"]]
    return PACKAGED if asked.packaged else model.name


def report(asked: argparse.Namespace, model: str) -> dict[str, Any]:
    compactor = None
    if asked.tokenizer:
        encoder = None if asked.profile == "exact" else load_encoder(asked.encoder)
        config = make_config({"profile": asked.profile})
        compactor = Compactor(config, load_token_counter(asked.tokenizer), encoder)
    arms = [read_attempts(paths, asked.judge, compactor, asked.within) for paths in (asked.off, asked.on)]
    return {"model": model, "profile": asked.profile, "within_turns": asked.within, **figures(*arms)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="drive the agent of this benchmark, then report")
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="an OpenAI-compatible server with the plugin")
    where.add_argument("--packaged", action="store_true", help=f"start a server with {PACKAGED}")
    run.add_argument("--model", help="its name at the server (default: the first that is served)")
    run.add_argument("--tasks", type=Path, default=Path(__file__).parent / "agent_tasks.jsonl")
    run.add_argument("--out", type=Path, required=True, help="folder for the attempts")
    run.add_argument("--repeats", type=int, default=5)
    run.add_argument("--temperature", type=float, default=0.7)
    run.add_argument("--max-tokens", type=int, default=512)
    run.add_argument("--max-turns", type=int, default=20)
    read = commands.add_parser("report", help="read the recorded runs of any agent")
    read.add_argument("--off", nargs="+", required=True, help="files of runs with the plugin off")
    read.add_argument("--on", nargs="+", required=True, help="files of runs with the plugin on")
    for command in (run, read):
        command.add_argument("--profile", choices=("exact", "guarded", "paper"), default="exact")
        command.add_argument("--encoder", default="minilm", help="that of guarded and paper")
        command.add_argument("--tokenizer", help="the served model's: without it no re-read rate")
        command.add_argument("--judge", help="command that decides on success")
        command.add_argument("--within", type=int, default=WITHIN_TURNS, help="turns (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    model = "recorded runs"
    if asked.command == "run":
        if asked.packaged:
            asked.tokenizer = asked.tokenizer or str(SERVED_MODEL)
        with cpu_server() if asked.packaged else nullcontext(asked.url) as url:
            model = run_arms(asked, url)
    figures_of_both = report(asked, model)
    print(f"\n{model}, profile {asked.profile}; read again: within {asked.within} turns")
    print_report(figures_of_both)
    print(json.dumps(figures_of_both))


if __name__ == "__main__":
    main()
