"""The commands `lam-vllm calibrate encoder` and `lam-vllm calibrate device`, and options that other commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Tokenizer = Annotated[str | None, typer.Option(help="file, folder or hub name; default: the encoder's")]
EncoderName = Annotated[str | None, typer.Option(help="an encoder profile, a folder or a hub name")]
ApiKey = Annotated[str | None, typer.Option(envvar="LAM_API_KEY", help="the server's key, if it has one")]

calibrate = typer.Typer(help="Measure here, on your own traces, what defaults should be.", no_args_is_help=True)


@calibrate.command("encoder")
def calibrate_encoder(
    name: Annotated[str, typer.Argument(metavar="NAME", help="an encoder profile, a folder or a hub name")],
    files: Annotated[
        list[str], typer.Argument(metavar="RUNS", help="recorded runs: files, folders, or names of data sets")
    ],
    tokenizer: Tokenizer = None,
    threshold: Annotated[
        list[float] | None, typer.Option(help="a t to measure; may be given again; default: eight from 0.99 to 0.9")
    ] = None,
    line_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="share of the distinct lines that L1 has to keep")
    ] = None,
    gold_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="the same of gold lines, where a run has a gold patch")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=2, help="windows that the guard band is measured on")] = None,
    out: Annotated[Path | None, typer.Option(help="the profile's file; default: NAME.yaml in your own folder")] = None,
    force: Annotated[bool, typer.Option("--force", help="write over a file that is there")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="write no profile")] = False,
    cache: Annotated[Path | None, typer.Option(help="folder of rows and embeddings; run again to go on")] = None,
    json: Annotated[Path | None, typer.Option(help="file for the figures")] = None,
) -> None:
    """Propose t and guard band for an encoder, and write its profile; 1 when no t keeps enough."""
    from lam_vllm.commands import calibrate as command
    from lam_vllm.evaluation import calibration

    floors = calibration.Floors(
        calibration.LINE_FLOOR if line_floor is None else line_floor,
        calibration.GOLD_FLOOR if gold_floor is None else gold_floor,
    )
    grid = calibration.grid(threshold or calibration.THRESHOLDS_COS)
    rule = command.Rule(grid, floors, sample or calibration.SAMPLE_WINDOWS)
    target = None if dry_run else command.target_of(name, out, force=force)
    raise typer.Exit(command.run(name, files, rule, tokenizer=tokenizer, cache=cache, target=target, json_file=json))


@calibrate.command("device")
def calibrate_device(
    url: Annotated[str | None, typer.Option(help="a running vLLM that has nothing else to do")] = None,
    model: Annotated[
        str | None, typer.Option(help="config.json of its model, or a folder with one; default: where it was loaded")
    ] = None,
    api_key: ApiKey = None,
    encoder: EncoderName = None,
    tokenizer: Annotated[str | None, typer.Option(help="the served model's, for the rate of profile exact")] = None,
    longest_tokens: Annotated[int | None, typer.Option(help="of a prompt; default: the window, at most 8192")] = None,
    rounds: Annotated[int, typer.Option(help="how often each prompt is timed; the median counts")] = 3,
    out: Annotated[Path, typer.Option(help="the device's file, for `lam-vllm model --device`")] = Path("device.json"),
    name: Annotated[str, typer.Option(help="of the device, for tables")] = "this machine",
) -> None:
    """Measure the performance model's constants on this machine, and of an engine that runs on it."""
    from lam_vllm.commands import calibrate_device as command

    options = command.Options(
        url=url,
        model=model,
        api_key=api_key,
        encoder=encoder,
        tokenizer=tokenizer,
        longest_tokens=longest_tokens,
        rounds=rounds,
        name=name,
    )
    command.run(options, out)
