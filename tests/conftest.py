"""What the whole suite shares: the served tokenizer, the packaged encoder, and recorded runs of every source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder, Encoder
from lam_vllm.encoders.measured import keep_pass
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.evaluation.corpus import Run, read_runs

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
SERVED_MODEL = ROOT / ".models/smollm2"

SIX_RUNS = (
    "mini_gemini3_verified/astropy__astropy-12907",
    "mini_gemini3_verified/django__django-11163",
    "openhands_study/matplotlib__matplotlib-22711",
    "sweagent_demos/trajectories/demonstrations/ctf/pwn/warmup.traj",
    "swesmith_samples/arrow-py__arrow.1d70d009.lm_rewrite__nuzjfyur.l13ggwmx_1",
    "taubench_airline/7/0",
)
"""Small runs that cover every source; bench/ does all 135."""


@pytest.fixture(scope="session", autouse=True)
def no_profiles_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Encoder profiles that somebody calibrated on this machine would change what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def count_tokens() -> Callable[[str], int]:
    """Tokens of the served model (SmolLM2)."""
    tokenizer = Tokenizer.from_file(str(SERVED_MODEL / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The packaged MiniLM."""
    return load_encoder("minilm")


def measured_before(encoder: BatchEncoder, cache: Path) -> Path:
    """`cache`, as $XDG_CACHE_HOME of a process that shall not measure this encoder's fast pass again.

    The guard band and the error are wider than any that was measured, so that they hold on every machine.
    """
    way = min((way for way in encoder.passes() if not way.canonical), key=lambda way: (way.precision, way.batch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        keep_pass(encoder, FastPass(way, 0.02, {way.label: 1.0}, "taken for the tests", 0.06))
    return cache


@pytest.fixture(scope="session")
def six_runs() -> list[Run]:
    wanted = [run for run in read_runs(CORPUS) if run.id in SIX_RUNS]
    assert len(wanted) == len(SIX_RUNS)
    return wanted


@pytest.fixture(scope="session")
def swesmith_runs() -> list[Run]:
    return [run for run in read_runs(CORPUS) if run.source == "swesmith_samples"]
