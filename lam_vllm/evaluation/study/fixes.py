"""Gold patches of SWE-smith runs: its tasks hold the patch that makes each bug, and the fix is the reverse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lam_vllm.evaluation.corpus import Run

TASKS = "SWE-bench/SWE-smith"
_HUNK = re.compile(r"@@ -(\S+) \+(\S+) @@")
_TURNED = {"+": "-", "-": "+"}


def with_fixes(runs: Sequence[Run], tasks: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs, those of a task in `tasks` with the fix of its bug as gold patch.

    A task has an `instance_id` and a `patch`. A run is named after its task, with or without a dot and a run's own name
    behind it.
    """
    wanted = {name for run in runs for name in _task_names(run)}
    fixes = {
        task["instance_id"]: reversed_patch(task["patch"])
        for task in tasks
        if task.get("instance_id") in wanted and isinstance(task.get("patch"), str)
    }
    return [
        replace(run, gold_patch=next((fixes[name] for name in _task_names(run) if name in fixes), run.gold_patch))
        for run in runs
    ]


def reversed_patch(patch: str) -> str:
    """The unified diff that takes `patch` back; names of files stay where they are."""
    lines, inside = [], False
    for line in patch.splitlines():
        hunk = _HUNK.match(line)
        inside = bool(hunk) or (inside and not line.startswith("diff "))
        if hunk:
            lines.append(f"@@ -{hunk[2]} +{hunk[1]} @@{line[hunk.end() :]}")
        else:
            lines.append(_TURNED.get(line[:1], line[:1]) + line[1:] if inside else line)
    return "\n".join(lines)


def _task_names(run: Run) -> tuple[str, str]:
    return run.id, run.id.rpartition(".")[0]
