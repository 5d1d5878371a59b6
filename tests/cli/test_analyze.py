"""`lam-vllm analyze` on real files: what it says about them, what it skips, and how it goes on after a kill."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.cli import app
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.analysis import Analysis, AnalysisFile, analyse, key_of
from lam_vllm.evaluation.analysis_tables import distribution_table
from lam_vllm.evaluation.corpus import Run

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / ".models/smollm2")
WORDS = ("alder", "birch", "cedar", "daphne", "elm", "fir", "gorse", "hazel", "ivy", "juniper", "larch", "maple")
FILE = "".join(f"{number}: the {word} stands beside the river\n" for number, word in enumerate(WORDS, 1))


def chat(*results: str, role: str = "tool") -> list[dict[str, str]]:
    calls = [[{"role": "assistant", "content": "cat"}, {"role": role, "content": result}] for result in results]
    return [{"role": "user", "content": "go"}, *(message for pair in calls for message in pair)]


TWICE = {"id": "twice", "source": "mine", "messages": chat(FILE, FILE)}
ONCE = {"id": "once", "source": "mine", "messages": chat(FILE, "ok")}
SILENT = {"id": "silent", "source": "mine", "messages": [{"role": "user", "content": "hello"}]}


def write(path: Path, *documents: Any) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def analyze(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments), "--tokenizer", TOKENIZER], env={"COLUMNS": "80"})


def figures(*arguments: str | Path) -> dict[str, Any]:
    done = analyze(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def in_words(text: str) -> int:
    return len(text.split())


def test_every_token_is_first_seen_removed_or_kept_and_the_emitted_text_is_counted() -> None:
    new = "a line that is new\n"
    run = Run("r", "mine", tuple(chat(FILE, FILE + new, "13: the oak")))
    made = analyse(run, Compactor(CompactorConfig(), in_words), in_words)
    assert in_words(FILE) == 84
    assert (made.observations, made.shortened) == (3, 1)
    assert made.observation_tokens == 84 + 84 + 5 + 3
    assert made.first_seen_tokens == 84 + 5 + 3
    assert (made.repeats_removed_tokens, made.repeats_kept_tokens) == (84, 0)
    assert made.emitted_tokens == 84 + made.stub_tokens + 5 + 3 and made.stub_tokens > 0
    assert made.reasons == {"no_repeat": 2}  # of the first result and of the third
    assert made.removed_share == pytest.approx(1 - made.emitted_tokens / made.observation_tokens)


def test_the_distribution_has_the_zeros_in_it(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", TWICE, ONCE, SILENT)
    found = figures(source)
    twice, once, silent = found["analyses"]
    assert [run["run"] for run in found["analyses"]] == ["twice", "once", "silent"]
    assert 0.25 < twice["removed_share"] < 0.5 and once["removed_share"] == 0 and silent["removed_share"] is None
    (spread,) = found["distribution"]
    assert (spread["runs"], spread["without_tool_output"], spread["nothing_removed"]) == (3, 1, 0.5)
    assert spread["p50"] == pytest.approx(twice["removed_share"] / 2)
    assert spread["max"] == twice["removed_share"]
    tokens = twice["observation_tokens"] + once["observation_tokens"]
    assert spread["pooled"] == pytest.approx((twice["observation_tokens"] - twice["emitted_tokens"]) / tokens)


def test_percentiles_are_those_of_the_runs() -> None:
    def of(emitted: int) -> Analysis:
        return Analysis("exact", "s", str(emitted), 1, 1, 100, emitted, 0, 0, 0, 0.0, {}, "", "", str(emitted))

    (record,) = distribution_table([of(emitted) for emitted in range(50, 101)]).records  # 0% to 50%
    assert [record[f"p{percentile}"] for percentile in (10, 25, 50, 75, 90)] == pytest.approx(
        [0.05, 0.125, 0.25, 0.375, 0.45]
    )
    assert record["max"] == record["p50"] + 0.25 == 0.5


def test_it_is_said_why_the_rest_stayed(tmp_path: Path) -> None:
    short = "1: a line that repeats, but not for long\n"
    found = figures(write(tmp_path / "in.jsonl", {**TWICE, "messages": chat(FILE + short, "9: other\n" + short, FILE)}))
    whys = {record["what"]: record["observations"] for record in found["reasons"]}
    assert whys == {"shortened": 1, "no_repeat": 1, "below_min_tokens": 1}
    (rest,) = found["rest"]
    assert rest["first_seen"] + rest["repeats_removed"] + rest["repeats_kept"] == pytest.approx(1)
    assert 0 < rest["repeats_kept"] < 0.1 and rest["repeats_removed"] > 0.3


def test_tables_fit_a_terminal_and_long_lists_are_shortened_unless_all_is_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", *({**TWICE, "id": f"a long name of a run, number {n}"} for n in range(25)))
    shortened, whole = analyze(source), analyze(source, "--all")
    assert shortened.exit_code == whole.exit_code == 0
    assert "number 19" in shortened.stdout and "number 20" not in shortened.stdout
    assert "and 5 more runs; --all shows them" in shortened.stdout
    assert "number 24" in whole.stdout
    assert all(words in shortened.stdout for words in ("zeros", "p10", "pooled", "no_repeat", "never"))
    assert "…" not in shortened.stdout and max(map(len, shortened.stdout.splitlines())) <= 80


def test_an_encoder_adds_guarded(tmp_path: Path) -> None:
    found = figures(write(tmp_path / "in.jsonl", TWICE), "--encoder", "minilm")
    assert [run["profile"] for run in found["analyses"]] == ["exact", "guarded"]
    exact, guarded = (run["emitted_tokens"] for run in found["analyses"])
    assert guarded <= exact


def test_paper_does_not_count_repeats_by_lines(tmp_path: Path) -> None:
    found = figures(write(tmp_path / "in.jsonl", TWICE), "--encoder", "minilm", "--profile", "paper")
    assert [(run["profile"], run["repeats_kept_tokens"]) for run in found["analyses"]] == [("paper", None)]


def test_tool_output_in_user_messages_is_counted_when_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {**TWICE, "messages": chat(FILE, FILE, role="user")})
    assert figures(source)["analyses"][0]["observation_tokens"] == 0
    asked = figures(source, "--observations", "tool+user")["analyses"][0]
    assert asked["observation_tokens"] > asked["emitted_tokens"] > 0


def test_what_cannot_be_read_is_named_and_the_rest_is_analysed(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(TWICE) + '\n{"messages": []}\n' + json.dumps(ONCE)[:-9] + "\n")
    done = analyze(source, tmp_path / "nowhere.jsonl")
    assert done.exit_code == 0
    assert "skipped 3:" in done.stderr
    for place in ("in.jsonl, line 2: expected a run", "in.jsonl, line 3: not JSON", "nowhere.jsonl: No such file"):
        assert done.stderr.count(place) == 1
    assert "twice" in done.stdout
    assert len(figures(source)["skipped"]) == 2


def test_when_nothing_can_be_read_the_exit_code_is_1(tmp_path: Path) -> None:
    done = analyze(write(tmp_path / "in.jsonl", {"messages": []}))
    assert done.exit_code == 1
    assert "skipped 1:" in done.stderr and done.stdout == ""


def test_csv_has_a_row_for_each_run_and_profile(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    assert analyze(write(tmp_path / "in.jsonl", TWICE, ONCE), "--csv", target).exit_code == 0
    with target.open(newline="") as file:
        twice, once = csv.DictReader(file)
    assert (twice["run"], twice["profile"], twice["shortened"]) == ("twice", "exact", "1")
    assert (once["removed_share"], once["stayed_no_repeat"]) == ("0.0", "2")


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", TWICE, ONCE, SILENT), tmp_path / "rows.jsonl"
    assert analyze(source, "--out", out).exit_code == 0
    whole = out.read_bytes()
    first, second, _ = whole.splitlines(keepends=True)
    marked = first.replace(b'"stub_tokens": ', b'"stub_tokens": 1000')  # shows that it is not made again
    out.write_bytes(marked + second[:40])
    done = analyze(source, "--out", out)
    assert done.exit_code == 0 and "1 of 3 analyses were on disk already" in done.stdout
    assert out.read_bytes() == marked + whole[len(first) :]


def test_other_options_and_changed_runs_are_analysed_anew(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", TWICE), tmp_path / "rows.jsonl"
    analyze(source, "--out", out)
    analyze(source, "--out", out, "--observations", "tool+user")
    write(source, {**TWICE, "messages": chat(FILE, FILE, FILE)})
    analyze(source, "--out", out)
    analyze(source, "--out", out)
    assert [json.loads(line)["observations"] for line in out.read_text().splitlines()] == [2, 2, 3]


def test_a_file_cut_anywhere_becomes_the_whole_file_again(tmp_path: Path) -> None:
    compactor = Compactor(CompactorConfig(), in_words)
    runs = [Run(name, "mine", tuple(chat(FILE, name))) for name in ("first", "second")]
    made = [analyse(run, compactor, in_words) for run in runs]
    path = tmp_path / "rows.jsonl"
    for analysis in made:
        AnalysisFile(path).add(analysis)
    whole = path.read_bytes()
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        file = AnalysisFile(path)
        for run, analysis in zip(runs, made, strict=True):
            if file.get(key_of(run, compactor)) is None:
                file.add(analysis)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("content", ["my notes", "my notes\n", '{"profile": 7}\n', b"\xff\n"])
def test_a_file_of_something_else_is_refused_and_left_alone(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(content)
    with pytest.raises(InputFileError, match="notes.txt"):
        AnalysisFile(path)
    done = analyze(write(tmp_path / "in.jsonl", TWICE), "--out", path)
    assert done.exit_code == 2 and "notes.txt" in done.stderr and done.stderr.count("\n") == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--profile", "best"), "profile: 'best' is not allowed"),
        (("--profile", "guarded"), "encoder: None is not allowed"),
        (("--observations", "all"), "observations: 'all' is not allowed"),
        (("--out", "nowhere/rows.jsonl"), "rows.jsonl: No such file"),
        (("--csv", "nowhere/rows.csv"), "rows.csv: cannot be written"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(options: tuple[str, str], words: str, tmp_path: Path) -> None:
    done = analyze(write(tmp_path / "in.jsonl", TWICE), *options)
    assert done.exit_code == 2 and words in done.stderr and done.stderr.strip().count("\n") == 0
