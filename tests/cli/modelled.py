"""`lam-vllm model`, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from lam_vllm.cli import app

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / ".models/smollm2")


def model(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["model", *map(str, arguments)])


def modelled(*arguments: object) -> dict[str, Any]:
    done = model(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def by_name(records: list[dict[str, Any]], key: str = "policy") -> dict[str, dict[str, Any]]:
    return {record[key]: record for record in records}
