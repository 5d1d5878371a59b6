"""The commands `lam-vllm serve` and `lam-vllm service`, which take what they do not know for settings of the server."""

from __future__ import annotations

from typing import Annotated

import typer

_OTHERS = (
    "Every --lam-OPTION of `lam-vllm serve` may be given too. Every user of this machine can read a command line while "
    "it runs: keys, and store URLs with a password, belong into LAM_API_KEY, LAM_KEY and LAM_STORE_URL."
)


def register_servers(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    others = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(add_help_option=False, context_settings={**others, "allow_interspersed_args": False})(serve)
    app.command(context_settings=others, epilog=_OTHERS)(service)


def serve(context: typer.Context) -> None:
    """Start vLLM with the plugin: MODEL and vLLM's own arguments, and --lam-OPTION for the server's defaults."""
    from lam_vllm.serving.launch import serve as launch

    launch(context.args)


def service(
    context: typer.Context,
    tokenizer: Annotated[str, typer.Option(help="the served model's: file, folder or hub name")],
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="port; 0 takes a free one")] = 8100,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="may be given again; others can read it here: better LAM_API_KEY or VLLM_API_KEY in the environment"
        ),
    ] = None,
) -> None:
    """Serve the routes and the metrics without vLLM: for other engines, and clients that compact before they send."""
    from lam_vllm.commands import service as command

    command.run(tokenizer, host=host, port=port, keys=api_key or [], argv=context.args)
