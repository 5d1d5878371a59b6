"""vLLM's own `serve` subcommand, for builds whose command line cannot start it: python -m lam_vllm.serving.subcommand.

The CPU build is installed under another name than `vllm`, and vLLM's command line looks its version up under that one.
"""

from __future__ import annotations

import argparse


def main() -> None:
    """Parse the arguments of `vllm serve` and run it."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.logger import configure_logging_from_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cli_env_setup()
    parser = FlexibleArgumentParser(description="vLLM CLI")
    command = ServeSubcommand()
    command.subparser_init(parser.add_subparsers(required=True, dest="subparser"))
    args: argparse.Namespace = parser.parse_args()
    configure_logging_from_args(args)
    command.validate(args)
    command.cmd(args)


if __name__ == "__main__":
    main()
