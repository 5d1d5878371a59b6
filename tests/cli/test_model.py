"""`lam-vllm model`: on a workload and on recorded runs, in both accountings, as tables, JSON and figures."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lam_vllm.cli import app
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.score import score
from lam_vllm.evaluation.turns import turns_of
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import forecast
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import GB10, H200
from tests.performance_model.cells import TABLES

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / ".models/smollm2")
ABOUT = (
    "short prompts",
    "slow compactor",
    "little removed",
    "decode-bound",
    "hard budget",
    "broken prefix",
    "where the gain comes from",
    "spare CPU",
)


def model(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["model", *map(str, arguments)])


def modelled(*arguments: object) -> dict[str, Any]:
    done = model(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def by_name(records: list[dict[str, Any]], key: str = "policy") -> dict[str, dict[str, Any]]:
    return {record[key]: record for record in records}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return modelled()


@pytest.fixture
def recorded(tmp_path: Path, six_runs: list[Run]) -> Path:
    path = tmp_path / "runs.jsonl"
    lines = (json.dumps({"id": run.id, "source": run.source, "messages": run.messages}) + "\n" for run in six_runs)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_parts_of_every_policy_are_its_seconds(plain: dict[str, Any]) -> None:
    for record in plain["policies"] + plain["budget"]:
        parts = ("weights", "prefill", "context", "compaction", "reprefill")
        assert record["total"] == pytest.approx(sum(record[part] for part in parts))


def test_policies_stand_in_their_order(plain: dict[str, Any]) -> None:
    found = by_name(plain["policies"])
    assert list(found) == [
        "no compaction",
        *(f"{name} exact" for name in ("admit", "suffix", "in_place", "wall_every_turn")),
    ]
    seconds = [found[f"{name} exact"]["total"] for name in ("admit", "suffix", "in_place", "wall_every_turn")]
    assert seconds == sorted(seconds)
    assert found["admit exact"]["over_admit"] == 1


def test_first_tokens_by_turn(plain: dict[str, Any]) -> None:
    turns = [record["turn"] for record in plain["ttft"]]
    assert turns[0] == 1 and turns[-1] == 205 and turns == sorted(turns)
    for policy in ("no compaction", "admit exact"):
        seconds = [record[policy] for record in plain["ttft"]]
        assert seconds == sorted(seconds)


def test_when_the_context_is_full(plain: dict[str, Any]) -> None:
    full = by_name(plain["full"])
    assert full["no compaction"]["window_turn"] == 206  # 131,072 / 637
    assert full["admit exact"]["window_turn"] == 256  # 131,072 / (637 - 0.207 x 598)
    assert full["no compaction"]["turns"] == 205 and full["admit exact"]["turns"] == 255


def test_the_papers_tables_come_out_of_the_papers_accounting() -> None:
    found = modelled("--accounting", "paper")
    full = by_name(found["full"])
    printed = TABLES["kv_capacity_turns"]
    assert full["no compaction"]["memory_turn"] == printed["uncompacted"]
    assert full["admit LAM"]["memory_turn"] == printed["lam"]
    gain = by_name(found["policies"])["in_place LAM"]["over_admit"]
    assert round(gain, 1) == TABLES["table8_total_s"]["gain"]["batch_1"]
    methods = by_name(found["methods"], "method")
    for row in TABLES["table2_latency_s_per_turn"]:
        assert methods[row["method"]]["total"] == pytest.approx(row["batch_1"], rel=0.015)


def test_constants_carry_their_source(plain: dict[str, Any]) -> None:
    constants = by_name(plain["constants"], "name")
    assert constants["prefill_efficiency"]["kind"] == "fitted"
    assert all(constant["source"] for constant in constants.values())


def test_json_says_what_was_asked_and_where_it_breaks_even(plain: dict[str, Any]) -> None:
    (engine,), (least,) = plain["engine"], plain["break_even"]
    asked = {"device": "GB10", "batch": 1, "accounting": "exact", "model_name": "Llama-3.1-8B"}
    assert asked.items() <= engine.items()
    again = by_name(modelled("--removal", 1.01 * least["removal"])["policies"])
    assert again["admit exact"]["total"] < again["no compaction"]["total"]
    again = by_name(modelled("--removal", 0.99 * least["removal"])["policies"])
    assert again["admit exact"]["total"] > again["no compaction"]["total"]


def test_when_it_does_not_pay_is_said_in_words() -> None:
    done = model()
    assert done.exit_code == 0, done.output
    _, _, words = done.stdout.partition("When it does not pay:")
    assert all(f"- {about}" in words for about in ABOUT)


@pytest.mark.parametrize(
    ("about", "arguments"),
    [
        ("short prompts", ("--turn-tokens", 60, "--decoded-tokens", 30, "--turns", 5)),
        ("slow compactor", ("--removal", 0)),
        ("little removed", ("--removal", 0.0001)),
        ("decode-bound", ("--turn-tokens", 900, "--decoded-tokens", 800)),
    ],
)
def test_it_is_said_where_it_applies(about: str, arguments: tuple[object, ...], plain: dict[str, Any]) -> None:
    assert by_name(modelled(*arguments)["does_not_pay"], "about")[about]["applies"] is True
    if about != "decode-bound":  # at batch 1 the default workload is bound by decoding too
        assert by_name(plain["does_not_pay"], "about")[about]["applies"] is False


def test_a_slow_compactor_is_called_slow(tmp_path: Path) -> None:
    slow = GB10.json()
    slow["exact_rate"] = {"value": 100.0, "unit": "tok/s", "source": "a test", "kind": "estimated"}
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(slow), encoding="utf-8")
    found = modelled("--device", path)
    caveats = by_name(found["does_not_pay"], "about")
    assert caveats["slow compactor"]["applies"] and caveats["little removed"]["applies"]
    policies = by_name(found["policies"])
    assert policies["admit exact"]["total"] > policies["no compaction"]["total"]


def test_under_a_hard_budget_the_gain_is_a_later_turn() -> None:
    budget = by_name(modelled("--budget-tokens", 8_000)["budget"])
    assert budget["no compaction"]["turns"] == 12 < budget["admit exact"]["turns"] == 15
    assert budget["wall_budget exact"]["reprefill"] > 0 == budget["admit exact"]["reprefill"]


def test_recorded_runs_are_measured_turn_by_turn(recorded: Path, six_runs: list[Run], count_tokens: Any) -> None:
    found = modelled(recorded, "--tokenizer", TOKENIZER, "--device", "H200")
    method = ProfileMethod("exact", count_tokens)
    runs = [turns_of(run, method, count_tokens) for run in six_runs]
    expected = forecast(Engine(H200, LLAMA_3_1_8B), runs, "admit", "exact", shared_lines)
    record = by_name(found["policies"])["admit exact"]
    assert record["total"] == pytest.approx(expected.turn.total) and record["ttft"] == pytest.approx(expected.turn.ttft)
    rows = [score(method, run, count_tokens) for run in six_runs]
    removal = 1 - sum(row.emitted_tokens for row in rows) / sum(row.observation_tokens for row in rows)
    said = by_name(found["does_not_pay"], "about")["little removed"]["text"]
    assert float(said.partition("%")[0]) / 100 == pytest.approx(removal, abs=0.005), "but for what was never answered"


def test_profiles_are_measured_side_by_side(six_runs: list[Run], tmp_path: Path) -> None:
    short = tmp_path / "short.jsonl"
    start = next(run for run in six_runs if run.source == "taubench_airline").messages[:12]
    short.write_text(json.dumps({"messages": start}) + "\n", encoding="utf-8")
    found = modelled(
        short, "--tokenizer", TOKENIZER, "--encoder", "minilm", "--profile", "exact", "--profile", "guarded"
    )
    policies = by_name(found["policies"])
    assert policies["admit guarded"]["compaction"] > policies["admit exact"]["compaction"] > 0
    assert list(by_name(found["full"])) == ["no compaction", "admit exact", "admit guarded"]


def test_figures_are_real_pictures(tmp_path: Path) -> None:
    done = model("--figures", "--out", tmp_path / "drawn", "--turns", 40)
    assert done.exit_code == 0, done.output
    for name in ("figure_1", "figure_8", "figure_9a", "figure_9c"):
        head = (tmp_path / f"drawn/{name}.png").read_bytes()
        width, height = struct.unpack(">II", head[16:24])
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and width > 800 and height > 500 and len(head) > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "abacus"), "device: 'abacus' is not allowed; allowed: GB10"),
        (("--model", "nothing"), "model: 'nothing' is not allowed"),
        (("--accounting", "creative"), "accounting: 'creative' is not allowed; allowed: exact, paper"),
        (("--batch", 0), "batch: 0 is not allowed"),
        (("--turns", 0), "turns: 0 is not allowed"),
        (("--start-tokens", -5), "other_tokens: -5.0 is not allowed"),
        (("--removal", 1.5), "removal: 1.5 is not allowed"),
        (("--budget-tokens", -1), "budget_tokens: -1.0 is not allowed"),
        (("--decoded-tokens", 700), "decoded_tokens: 700.0 is not allowed; allowed: at most the 637"),
        (("--start-tokens", 140_000), "at most 131,072, what fits"),
        (("--profile", "exact", "--profile", "paper"), "so name FILES"),
        (("--profile", "best", "--removal", 0.1), "profile: 'best' is not allowed; allowed: exact, guarded, paper"),
        (("--profile", "guarded"), "removal: None is not allowed; allowed: a share of tool output"),
        (("FILE",), "tokenizer: None is not allowed"),
        (("FILE", "--tokenizer", TOKENIZER, "--profile", "guarded"), "encoder: None is not allowed"),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(arguments: tuple[object, ...], words: str) -> None:
    done = model(*arguments)
    assert done.exit_code == 2 and words in done.stderr
    assert "Traceback" not in done.output


def test_runs_without_an_answer_are_said_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n', encoding="utf-8")
    done = model(path, "--tokenizer", TOKENIZER)
    assert done.exit_code == 2 and "runs in which a model answers at least once" in done.stderr
