"""The command `lam-vllm search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lam_vllm.commands.calibrate_app import ApiKey, EncoderName, Tokenizer


def register_search(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(search)


def search(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="recorded runs, in any format of the README")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="what the tool output to be found is about")],
    run: Annotated[str | None, typer.Option(help="id of the run; default: the first")] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="windows to show")] = 10,
    tokenizer: Tokenizer = None,
    encoder: EncoderName = None,
    profile: Annotated[str | None, typer.Option(help="guarded or paper; default: guarded, or the server's")] = None,
    observations: Annotated[str | None, typer.Option(help="tool, or tool+user")] = None,
    url: Annotated[str | None, typer.Option(help="ask this server, by its encoder, instead of this process")] = None,
    api_key: ApiKey = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON in place of the table")] = False,
) -> None:
    """Find tool output of a recorded run by meaning, and say what else each find stands for."""
    from lam_vllm.commands import search as command
    from lam_vllm.evaluation.corpus import find_run

    found_in = find_run(source, run)
    question = command.Question(query, k, {"profile": profile, "observations": observations})
    if url is None:
        answer = command.search_here(found_in, question, encoder, tokenizer)
    else:
        answer = command.search_there(found_in, question, url, api_key)
    if json:
        typer.echo(command.as_json(answer))
    else:
        Console().print(command.table(answer, query, found_in.messages))
