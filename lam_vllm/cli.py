"""The command `lam-vllm`. Thin: each command's work is in `commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from typer.core import TyperGroup

from lam_vllm.commands.calibrate_app import ApiKey, EncoderName, Tokenizer, calibrate
from lam_vllm.commands.search_app import register_search
from lam_vllm.commands.server_app import register_servers
from lam_vllm.errors import LamError

FAILED = 2


class _Group(TyperGroup):
    """Turns this package's errors into one line and an exit code, for every command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LamError as error:
            typer.echo(f"lam-vllm: {error}", err=True)
            raise typer.Exit(FAILED) from None


app = typer.Typer(
    cls=_Group,
    help="Replace tool output that an agent's prompt already holds by short references.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Profile = Annotated[
    str | None, typer.Option(help="exact, guarded or paper; default: guarded with an encoder, else exact")
]
Aliases = Annotated[bool | None, typer.Option(help="short names for directories that begin many lines of a listing")]
ThresholdCos = Annotated[float | None, typer.Option(help="t: cosine from which windows are near")]
Observations = Annotated[str | None, typer.Option(help="tool, or tool+user")]
ConfigFile = Annotated[Path | None, typer.Option(help="YAML file of options; flags win over it")]


@app.command()
def compact(
    source: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="an object with `messages` on each line")],
    out: Annotated[Path, typer.Option(help="where the compacted conversations go")],
    profile: Profile = None,
    tokenizer: Tokenizer = None,
    encoder: EncoderName = None,
    threshold_cos: ThresholdCos = None,
    min_tokens: Annotated[int | None, typer.Option(help="nothing shorter is replaced")] = None,
    observations: Observations = None,
    directory_aliases: Aliases = None,
    config: ConfigFile = None,
) -> None:
    """Compact the conversations of a file, with an account of every cut under `lam`."""
    from lam_vllm.commands import compact as command

    flags = {
        "profile": profile,
        "threshold_cos": threshold_cos,
        "min_tokens": min_tokens,
        "observations": observations,
        "directory_aliases": directory_aliases,
    }
    compactor, count_tokens = command.make_compactor(flags, config, encoder, tokenizer)
    rows = command.compact_file(source, out, compactor, count_tokens)
    Console().print(command.table(rows, str(compactor.config.profile)))


@app.command()
def analyze(
    files: Annotated[
        list[str], typer.Argument(metavar="FILES", help="recorded runs: files, folders, or names of data sets")
    ],
    tokenizer: Annotated[str, typer.Option(help="the served model's: file, folder or hub name")],
    encoder: EncoderName = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="may be given again; default: exact, and guarded with an encoder")
    ] = None,
    observations: Observations = None,
    directory_aliases: Aliases = None,
    out: Annotated[Path | None, typer.Option(help="JSON lines, kept as they are made; run again to go on")] = None,
    csv: Annotated[Path | None, typer.Option(help="a row for each run and profile")] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON in place of tables")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="print every run")] = False,
) -> None:
    """Say what each profile would remove from your own traces, and why the rest stays; 1 when nothing can be read."""
    from lam_vllm.commands import analyze as command

    flags = {"observations": observations, "directory_aliases": directory_aliases}
    compactors, count_tokens = command.make_compactors(profile or [], flags, encoder, tokenizer)
    outcome = command.analyze_files(files, compactors, count_tokens, out)
    if csv:
        command.write_csv(outcome, csv)
    command.show(outcome, as_json=json, show_all=show_all)
    raise typer.Exit(int(not outcome.analyses))


@app.command()
def doctor(
    url: Annotated[str | None, typer.Option(help="also ask a running server")] = None,
    api_key: ApiKey = None,
) -> None:
    """Tell what is installed, which path is taken, and why; exit code 1 when something is wrong."""
    from lam_vllm.commands import doctor as command

    findings = command.examine(url, api_key)
    Console().print(command.table(findings))
    raise typer.Exit(int(any(finding.wrong for finding in findings)))


@app.command()
def replay(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="recorded runs, in any format of the README")],
    url: Annotated[str, typer.Option(help="the server")] = "http://localhost:8000",
    api: Annotated[str, typer.Option(help="chat, responses or messages")] = "chat",
    run: Annotated[str | None, typer.Option(help="id of the run; default: the first")] = None,
    profile: Annotated[str | None, typer.Option(help="default: the server's")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="stop after this many turns")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens of each answer")] = 8,
    api_key: ApiKey = None,
) -> None:
    """Send a recorded run to a server turn by turn, plugin off and then on, and compare."""
    from lam_vllm.evaluation.corpus import find_run
    from lam_vllm.evaluation.live.client import Client
    from lam_vllm.evaluation.live.replay import prompts
    from lam_vllm.evaluation.live.replay import replay as replay_run
    from lam_vllm.evaluation.live.report import summary_table

    recorded = find_run(source, run)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("replaying", total=2 * len(prompts(recorded.messages)[:max_turns]))
        result = replay_run(
            recorded,
            Client(url, api_key),
            api=api,
            profile=profile,
            max_turns=max_turns,
            max_tokens=max_tokens,
            on_turn=lambda: progress.advance(task),
        )
    Console().print(summary_table([result], f"{recorded.id} through {api}"))


@app.command("eval")
def evaluate(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="recorded runs: files, folders, or names of data sets")
    ] = None,
    tokenizer: Tokenizer = None,
    encoder: Annotated[
        list[str] | None, typer.Option(help="may be given again: the first serves the methods, all are compared")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="may be given again; default: all")] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="every setting, and what each floor of evidence allows")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder of rows and files; run again to go on")] = Path("lam-eval"),
    csv: Annotated[bool, typer.Option("--csv", help="write a file for each kind of table")] = False,
    json: Annotated[bool, typer.Option("--json", help="write eval.json")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="draw the paper's figures")] = False,
    reproduce: Annotated[
        bool,
        typer.Option("--reproduce", help="the paper's tables beside ours; without FILES on its runs, from the hub"),
    ] = False,
    llmlingua_xlm_weights: Annotated[str | None, typer.Option(help="folder or hub name; default: as published")] = None,
    llmlingua_bert_weights: Annotated[str | None, typer.Option(help="the same of the smaller checkpoint")] = None,
    summary_url: Annotated[str | None, typer.Option(help="server that writes summaries")] = None,
    summary_model: Annotated[str | None, typer.Option(help="default: the first that it serves")] = None,
    summary_api_key: Annotated[str | None, typer.Option(envvar="LAM_SUMMARY_API_KEY", help="that server's key")] = None,
) -> None:
    """Measure what each method removes from recorded runs and what stays readable; 1 when the figures are in doubt."""
    from lam_vllm.commands import evaluate as evaluate_command
    from lam_vllm.commands import reproduce as reproduce_command
    from lam_vllm.commands.eval_output import Outputs
    from lam_vllm.commands.eval_setup import Options

    models = {
        "llmlingua_xlm_weights": llmlingua_xlm_weights,
        "llmlingua_bert_weights": llmlingua_bert_weights,
        "summary_url": summary_url,
        "summary_model": summary_model,
        "summary_api_key": summary_api_key,
    }
    given = {name: value for name, value in models.items() if value is not None}
    options = Options(tokenizer, out, tuple(encoder or ()), tuple(method or ()), sweep, given)
    run = reproduce_command.run if reproduce else evaluate_command.run
    raise typer.Exit(run(files or [], options, Outputs(csv, json, figures)))


@app.command()
def model(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="recorded runs; without any, a workload of equal turns")
    ] = None,
    device: Annotated[
        str, typer.Option(help="GB10, A100-40GB, H100, H200, or a JSON file that describes one")
    ] = "GB10",
    model: Annotated[str, typer.Option(help="Llama-3.1-8B, a config.json, or a folder with one")] = "Llama-3.1-8B",
    batch: Annotated[int, typer.Option(help="requests that decode together and share the memory")] = 1,
    accounting: Annotated[str, typer.Option(help="exact, or paper: as its tables count")] = "exact",
    turns: Annotated[int | None, typer.Option(help="default: until the context is full")] = None,
    turn_tokens: Annotated[float | None, typer.Option(help="what a turn adds to the context; default: 637")] = None,
    decoded_tokens: Annotated[float | None, typer.Option(help="of them the answer's; default: 39")] = None,
    start_tokens: Annotated[
        float | None, typer.Option(help="what the first turn brings beside, prompt and task; default: 0")
    ] = None,
    removal: Annotated[
        float | None, typer.Option(help="share of tool output that goes; default: what exact takes of mini-swe-agent")
    ] = None,
    budget_tokens: Annotated[float, typer.Option(help="what a context may hold where it has a budget")] = 32_000,
    profile: Annotated[
        list[str] | None, typer.Option(help="may be given again with FILES, where each is measured; default: exact")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="the served model's, for FILES")] = None,
    encoder: EncoderName = None,
    observations: Observations = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object in place of tables")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="draw the paper's figures 1, 8, 9a and 9c")] = False,
    out: Annotated[Path, typer.Option(help="folder of the figures")] = Path("lam-model"),
) -> None:
    """Model what compaction is worth before deployment: seconds a turn, turns that fit, and when it does not pay."""
    from lam_vllm.commands import model as command
    from lam_vllm.commands.model_output import Outputs

    options = command.Options(
        device=device,
        model=model,
        batch=batch,
        accounting=accounting,
        turns=turns,
        turn_tokens=turn_tokens,
        decoded_tokens=decoded_tokens,
        start_tokens=start_tokens,
        removal=removal,
        budget_tokens=budget_tokens,
        profiles=tuple(dict.fromkeys(profile or [])),
        tokenizer=tokenizer,
        encoder=encoder,
        observations=observations,
    )
    command.run(files or [], options, Outputs(json, figures, out))


@app.command()
def inspect(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="recorded runs, in any format of the README")],
    html: Annotated[Path, typer.Option(help="where the page goes")],
    run: Annotated[str | None, typer.Option(help="id of the run; default: the first")] = None,
    profile: Profile = None,
    tokenizer: Tokenizer = None,
    encoder: EncoderName = None,
    threshold_cos: ThresholdCos = None,
    observations: Observations = None,
    directory_aliases: Aliases = None,
    config: ConfigFile = None,
) -> None:
    """Show a run as one page: every cut in its place, with its stub, its original and what stands for it."""
    from lam_vllm.commands import inspect as command
    from lam_vllm.commands.compact import make_compactor
    from lam_vllm.evaluation.corpus import find_run

    flags = {
        "profile": profile,
        "threshold_cos": threshold_cos,
        "observations": observations,
        "directory_aliases": directory_aliases,
    }
    compactor, count_tokens = make_compactor(flags, config, encoder, tokenizer)
    inspection = command.write_page(find_run(source, run), html, compactor, count_tokens)
    Console().print(command.summary(inspection), highlight=False, soft_wrap=True)


app.add_typer(calibrate, name="calibrate")
register_search(app)
register_servers(app)


def main() -> None:
    """Run the command line."""
    app()
