"""The benchmarks that measure encoding: each is a program of its own, which begins with nothing loaded or set."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def parser_of(about: str) -> argparse.ArgumentParser:
    """The options that every one of them has."""
    parser = argparse.ArgumentParser(description=about.split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of the encoder, each on a core (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a small sample: that it works, no figure to keep")
    return parser


def figures_of(program: str, *options: str, **variables: str) -> dict[str, Any]:
    """The JSON that `program` ends in, run with these variables set besides; what it prints before is printed here."""
    command = [sys.executable, str(HERE / f"{program}.py"), *options]
    ran = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True)
    table, _, last = ran.stdout.rstrip("\n").rpartition("\n")
    if table:
        print(table, flush=True)
    figures: dict[str, Any] = json.loads(last)
    return figures
