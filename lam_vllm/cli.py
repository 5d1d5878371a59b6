"""The command `lam-vllm`. Thin: each command's work is in `commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from typer.core import TyperGroup

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
ApiKey = Annotated[str | None, typer.Option(envvar="LAM_API_KEY", help="the server's key, if it has one")]


@app.command()
def compact(
    source: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="an object with `messages` on each line")],
    out: Annotated[Path, typer.Option(help="where the compacted conversations go")],
    profile: Profile = None,
    tokenizer: Annotated[str | None, typer.Option(help="file, folder or hub name; default: the encoder's")] = None,
    encoder: Annotated[str | None, typer.Option(help="an encoder profile, a folder or a hub name")] = None,
    threshold_cos: Annotated[float | None, typer.Option(help="t: cosine from which windows are near")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="nothing shorter is replaced")] = None,
    observations: Annotated[str | None, typer.Option(help="tool, or tool+user")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of options; flags win over it")] = None,
) -> None:
    """Compact the conversations of a file, with an account of every cut under `lam`."""
    from lam_vllm.commands import compact as command

    flags = {
        "profile": profile,
        "threshold_cos": threshold_cos,
        "min_tokens": min_tokens,
        "observations": observations,
    }
    compactor, count_tokens = command.make_compactor(flags, config, encoder, tokenizer)
    rows = command.compact_file(source, out, compactor, count_tokens)
    Console().print(command.table(rows, str(compactor.config.profile)))


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
    from lam_vllm.evaluation.client import Client
    from lam_vllm.evaluation.corpus import find_run
    from lam_vllm.evaluation.replay import prompts
    from lam_vllm.evaluation.replay import replay as replay_run
    from lam_vllm.evaluation.report import summary_table

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


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def serve(context: typer.Context) -> None:
    """Start vLLM with the plugin: MODEL and vLLM's own arguments, and --lam-OPTION for the server's defaults."""
    from lam_vllm.serving.launch import serve as launch

    launch(context.args)


def main() -> None:
    """Run the command line."""
    app()
