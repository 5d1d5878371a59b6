"""`lam-vllm eval` on recorded runs: what is printed, kept, written and drawn, and that it goes on where it stopped."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lam_vllm.cli import app
from lam_vllm.evaluation.corpus import Run, read_runs
from lam_vllm.evaluation.measures.gold import Figure, gold_rates, line_retention, net_removal
from lam_vllm.evaluation.rows import Row, by, read_rows
from lam_vllm.evaluation.score import score
from lam_vllm.evaluation.study.reproduce import NOT_HERE

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/data/corpus/trajectories.jsonl.xz"
TOKENIZER = str(ROOT / ".models/smollm2")
GOLD_RUN = "mini_gemini3_verified/django__django-15863"
JSON_RUN = "taubench_airline/14/0"
LIGHT = ("none", "l0", "exact", "span_folding", "masking")
"""Families that need no encoder."""


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """A short run with a gold patch and an outcome, and one of JSON tools."""
    found = {run.id: run for run in read_runs(CORPUS) if run.id in (GOLD_RUN, JSON_RUN)}
    return [found[GOLD_RUN], found[JSON_RUN]]


def write(path: Path, *runs: Run) -> Path:
    fields = ("id", "source", "messages", "gold_patch", "resolved")
    lines = (json.dumps({name: getattr(run, name) for name in fields}) + "\n" for run in runs)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def evaluate(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["eval", *map(str, arguments)])


def light(source: Path, out: Path, *options: str, methods: tuple[str, ...] = LIGHT) -> Result:
    chosen = [word for name in methods for word in ("--method", name)]
    return evaluate(source, "--tokenizer", TOKENIZER, "--out", out, *chosen, *options)


def test_every_method_has_a_line_for_each_source(tmp_path: Path, runs: list[Run]) -> None:
    done = light(write(tmp_path / "runs.jsonl", *runs), tmp_path / "out")
    assert done.exit_code == 0, done.output
    for source in ("mini_gemini3_verified", "taubench_airline"):
        _, _, table = done.stdout.partition(f"{source}: what is removed")
        assert all(f" {name}" in table.partition("distinct lines")[0] for name in LIGHT)


def test_csv_and_json_hold_the_rates_of_the_rows(tmp_path: Path, runs: list[Run]) -> None:
    done = light(write(tmp_path / "runs.jsonl", *runs), tmp_path / "out", "--csv", "--json")
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))["rates"]
    rows = by(read_rows(tmp_path / "out/rows.jsonl", Row), "source", "method", "setting")
    assert len(written) == len(rows)
    for record in written:
        group = rows[record["source"], record["method"], record["setting"]]
        assert record["removed_net"] == net_removal(group)
        assert record["lines_kept"] == in_words(line_retention(group))
        assert record["gold_kept"] == in_words(gold_rates(group).strict_micro)
        assert record["cpu_ms_per_1k_tokens"] == pytest.approx(1e3 * group[0].cpu_ms / group[0].observation_tokens)
    with (tmp_path / "out/rates.csv").open(encoding="utf-8") as file:
        assert [{name: str(value) for name, value in record.items()} for record in written] == list(
            csv.DictReader(file)
        )


def test_every_lost_gold_line_is_listed(tmp_path: Path) -> None:
    results = [{"role": "tool", "content": f"shown in result {number}"} for number in range(1, 9)]
    patch = "@@ -1,3 +1,1 @@\n-shown in result 1\n shown in result 2\n-shown in result 8\n"
    source = write(tmp_path / "runs.jsonl", Run("early", "agent", tuple(results), patch, True))
    light(source, tmp_path / "out", "--json", "--csv", methods=("l0", "masking"))
    lost = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))["lost"]
    at = {"method": "masking", "setting": "k=5", "seed": 0, "source": "agent", "run": "early"}
    assert lost == [{**at, "line": "shown in result 1"}, {**at, "line": "shown in result 2"}]
    assert (tmp_path / "out/lost.csv").read_text(encoding="utf-8").splitlines()[1:] == [
        "masking,k=5,0,agent,early,shown in result 1",
        "masking,k=5,0,agent,early,shown in result 2",
    ]


def test_a_lost_line_belongs_to_the_run_of_its_source(tmp_path: Path) -> None:
    results = tuple({"role": "tool", "content": f"shown in result {number}"} for number in range(1, 9))
    first, last = (f"@@ -1,1 +0,0 @@\n-shown in result {number}\n" for number in (1, 8))
    runs = [Run("same", "loses", results, first, True), Run("same", "keeps", results, last, True)]
    light(write(tmp_path / "runs.jsonl", *runs), tmp_path / "out", "--json", methods=("masking",))
    (lost,) = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))["lost"]
    assert (lost["source"], lost["run"], lost["line"]) == ("loses", "same", "shown in result 1")


def test_runs_of_one_name_are_all_measured(tmp_path: Path) -> None:
    for folder, word in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        unnamed = [{"role": "tool", "content": f"{word} result"}]
        attempts = [{"id": "task", "messages": [{"role": "tool", "content": f"{word} {n}"}]} for n in (1, 2)]
        lines = [json.dumps(document) + "\n" for document in ({"messages": unnamed}, *attempts)]
        (tmp_path / folder / "r.jsonl").write_text("".join(lines), encoding="utf-8")
    options = ("--tokenizer", TOKENIZER, "--out", tmp_path / "out", "--method", "masking", "--sweep")
    done = evaluate(tmp_path / "a/r.jsonl", tmp_path / "b/r.jsonl", *options)
    assert done.exit_code == 0, done.output
    rows = by(read_rows(tmp_path / "out/rows.jsonl", Row), "setting")
    names = ["r.jsonl:1", "task", "task#2", "r.jsonl:1#2", "task#3", "task#4"]
    assert all([row.run for row in group] == names for group in rows.values())


def test_guarded_stands_beside_itself_without_its_encoder(tmp_path: Path, runs: list[Run]) -> None:
    methods = ("guarded", "components")
    out = tmp_path / "out"
    done = light(write(tmp_path / "runs.jsonl", runs[1]), out, "--encoder", "minilm", "--json", methods=methods)
    assert done.exit_code == 0, done.output
    assert "guarded t=0.95" in done.stdout and "guarded t=1 " in done.stdout
    (bound,) = json.loads((out / "eval.json").read_text(encoding="utf-8"))["bound"]
    assert bound["label"] == "components t=0.95" and 0 <= bound["violations"] <= bound["dropped"]
    assert "of them beyond delta" in done.stdout


def test_rows_are_those_of_the_scorer(tmp_path: Path, runs: list[Run], count_tokens: Any) -> None:
    from lam_vllm.evaluation.baselines import Inputs, make_family

    light(write(tmp_path / "runs.jsonl", *runs), tmp_path / "out", methods=("exact",))
    made = read_rows(tmp_path / "out/rows.jsonl", Row)
    methods = make_family("exact", Inputs(count_tokens)).methods
    expected = [score(method, run, count_tokens) for run in runs for method in methods]
    assert [timeless(row) for row in made] == [timeless(row) for row in expected]


def in_words(figure: Figure) -> float | str:
    return figure if isinstance(figure, float) else str(figure)


def timeless(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__ if name != "cpu_ms"}


def test_an_interrupted_evaluation_goes_on_where_it_stopped(tmp_path: Path, runs: list[Run]) -> None:
    source, rows = write(tmp_path / "runs.jsonl", *runs), tmp_path / "out/rows.jsonl"
    light(source, tmp_path / "out")
    first, *whole = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(first + b"".join(whole[:3]) + whole[3][:40])
    assert light(source, tmp_path / "out").exit_code == 0
    again = rows.read_bytes().splitlines(keepends=True)[1:]
    assert again[:3] == whole[:3], "what was there is not measured again"
    assert [line.split(b",")[:6] for line in again] == [line.split(b",")[:6] for line in whole]


def test_a_run_that_changed_is_measured_again(tmp_path: Path, runs: list[Run]) -> None:
    source, out = tmp_path / "runs.jsonl", tmp_path / "out"
    light(write(source, runs[1]), out, methods=("none",))
    shorter = Run(runs[1].id, runs[1].source, runs[1].messages[:-4], runs[1].gold_patch, runs[1].resolved)
    done = light(write(source, shorter), out, "--json", methods=("none",))
    assert len((out / "rows.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    written = json.loads((out / "eval.json").read_text(encoding="utf-8"))["rates"]
    assert done.exit_code == 0 and len(written) == 1 and written[0]["runs"] == 1


def test_what_cannot_run_or_be_read_is_said_with_its_reason(tmp_path: Path, runs: list[Run]) -> None:
    source = write(tmp_path / "runs.jsonl", runs[1])
    with source.open("a", encoding="utf-8") as file:
        file.write('{"messages": 3}\n')
    done = light(source, tmp_path / "out", "--json", "--csv", methods=("none", "paper", "summaries"))
    assert done.exit_code == 0, done.output
    assert "left out: paper: no encoder was given" in done.stderr
    assert "left out: summaries: no server for summaries was named" in done.stderr
    assert "skipped 1:" in done.stderr and "runs.jsonl, line 2: expected a run" in done.stderr
    (skipped,) = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))["skipped"]
    reason = "expected a run: chat messages, each an object with a role"
    assert skipped == {"place": f"{source}, line 2", "reason": reason}
    with (tmp_path / "out/skipped.csv").open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [skipped]


def test_weights_that_are_not_there_are_named(tmp_path: Path, runs: list[Run]) -> None:
    weights = ("--llmlingua-bert-weights", str(tmp_path / "nowhere/weights"))
    done = light(write(tmp_path / "runs.jsonl", runs[1]), tmp_path / "out", *weights, methods=("llmlingua2_bert",))
    assert "left out: llmlingua2_bert: no weights" in done.stderr and "nowhere/weights" in done.stderr


def test_a_sweep_names_the_setting_that_binds_at_each_floor(tmp_path: Path, runs: list[Run]) -> None:
    source = write(tmp_path / "runs.jsonl", runs[0])
    done = light(source, tmp_path / "out", "--sweep", "--json", methods=("l0", "masking"))
    assert done.exit_code == 0, done.output
    tables = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))
    l0, masking = tables["ecr"]
    rows = by(read_rows(tmp_path / "out/rows.jsonl", Row), "method", "setting")
    assert l0["ecr_1.000"] == net_removal(rows["l0", ""])
    assert masking["ecr_1.000"] == net_removal(rows["masking", masking["at_1.000"]])
    assert all(row.gold_kept == row.gold_witnessed for row in rows["masking", masking["at_1.000"]])
    assert [line["floor"] for line in tables["floors"]] == [1.0, 0.999, 0.99, 0.95]
    k3 = next(line for line in tables["settings"] if line["label"] == "masking k=3")
    assert k3["rsc"] == float(rows["masking", "k=3"][0].gold_kept == rows["masking", "k=3"][0].gold_witnessed)
    assert k3["eta_8"] <= k3["eta_1"] <= k3["removed_net"]
    assert "RSC assumes that" in done.stdout


def test_figures_are_real_pictures(tmp_path: Path, runs: list[Run]) -> None:
    source = write(tmp_path / "runs.jsonl", *runs)
    done = light(source, tmp_path / "out", "--sweep", "--figures", methods=("l0", "exact", "masking"))
    assert done.exit_code == 0, done.output
    assert drawn(tmp_path / "out") == {"figure_3", "figure_9b"}, "the others need an encoder"


def test_several_encoders_are_compared(tmp_path: Path, runs: list[Run]) -> None:
    encoders = ("--encoder", "minilm", "--encoder", "minilm-cls")
    done = light(write(tmp_path / "runs.jsonl", runs[1]), tmp_path / "out", *encoders, "--figures", methods=("none",))
    assert done.exit_code == 0, done.output
    assert drawn(tmp_path / "out") == {"figure_5", "figure_6", "figure_7", "figure_9d"}


def drawn(folder: Path) -> set[str]:
    """Names of the PNG files that are large enough to be looked at."""
    names = set()
    for path in folder.glob("*.png"):
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:24])
        assert width > 800 and height > 500 and path.stat().st_size > 10_000
        names.add(path.stem)
    return names


def test_the_papers_tables_stand_beside_those_of_local_runs(tmp_path: Path, runs: list[Run]) -> None:
    source, out = write(tmp_path / "runs.jsonl", runs[0]), tmp_path / "out"
    methods = [word for name in ("none", "l0", "l1", "paper", "masking") for word in ("--method", name)]
    arguments: tuple[str | Path, ...] = (
        "--reproduce",
        "--tokenizer",
        TOKENIZER,
        "--encoder",
        "minilm",
        "--out",
        out,
        *methods,
    )
    done = evaluate(source, *arguments, "--json", "--figures")
    assert done.exit_code == 0, done.output
    tables = json.loads((out / "eval.json").read_text(encoding="utf-8"))
    numbers = {name.removeprefix("table_") for name in tables} - {"left_out", "skipped"}
    assert numbers == {"3", "5", "6", "11", "12", "15", "16", "17", "18", "19", "21", "23", "24", "25"}
    assert {f"table {number}" for number in NOT_HERE} <= set(tables["left_out"]) and "table 26" in done.stderr
    rows = by(read_rows(out / "rows.jsonl", Row), "method", "setting")
    at_95 = next(line for line in tables["table_3"] if line["t"] == "0.95")
    assert at_95["removed %, paper"] == 22.5
    assert at_95["removed %, ours"] == pytest.approx(100 * number(net_removal(rows["paper", "t=0.95"])))
    (record, *_) = tables["table_5"]
    assert record["unit"] == "record" and record["% of tokens, paper"] == 1.61
    assert drawn(out) == {"figure_3", "figure_4", "figure_5", "figure_6", "figure_7", "figure_9b"}


def number(figure: object) -> float:
    assert isinstance(figure, float)
    return figure


def test_without_a_hub_reproducing_says_so(tmp_path: Path) -> None:
    done = evaluate("--reproduce", "--encoder", "nobody/has-such-an-encoder", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "no model hub can be reached" in done.stderr and "nobody/has-such-an-encoder" in done.stderr
    assert "name FILES" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tokenizer", TOKENIZER, "--method", "magic"), "method: 'magic' is not allowed; allowed: none, l0"),
        ((), "tokenizer: None is not allowed"),
        (("--tokenizer", TOKENIZER, "--reproduce"), "encoder: None is not allowed"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, runs: list[Run], options: tuple[str, ...], words: str) -> None:
    done = evaluate(write(tmp_path / "runs.jsonl", runs[1]), "--out", tmp_path / "out", *options)
    assert done.exit_code == 2 and words in done.stderr


def test_without_files_nothing_is_evaluated(tmp_path: Path) -> None:
    done = evaluate("--tokenizer", TOKENIZER, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "files: None is not allowed; allowed: files or data sets, or --reproduce" in done.stderr


def test_files_without_a_run_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    done = evaluate(tmp_path / "empty.jsonl", "--tokenizer", TOKENIZER, "--out", tmp_path / "out")
    assert done.exit_code == 2 and "no run can be read" in done.stderr
