"""What the benchmarks share: the recorded runs, the served model's tokenizer, and what names the machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.evaluation.corpus import Run, read_runs

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
SERVED_MODEL = ROOT / ".models/smollm2"
SOURCES = ("mini_gemini3_verified", "openhands_study", "sweagent_demos", "swesmith_samples", "taubench_airline")


def corpus_runs(sources: Sequence[str] = SOURCES, limit: int | None = None) -> list[Run]:
    """The runs of these sources in the corpus's order, of each source the first `limit` (None: all)."""
    runs = list(read_runs(CORPUS))
    return [run for source in sources for run in [run for run in runs if run.source == source][:limit]]


def observed(messages: Sequence[object]) -> list[str]:
    """The texts of the tool results. In the corpus they have role `tool` and string content throughout."""
    return [message["content"] for message in messages if isinstance(message, dict) and message["role"] == "tool"]


def served_tokens() -> Callable[[str], int]:
    """A fresh token counter of the served model, its tokenizer's own cache of words empty."""
    return load_token_counter(str(SERVED_MODEL))


def machine() -> str:
    """CPU model, cores and Python version, in one line."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    model = found.group(1) if found else platform.processor()
    return f"{model.strip()}, {os.cpu_count()} cores, Python {platform.python_version()}"
