"""A shell command in a folder of its own, with limits. Limits are no sandbox: run strange models in a container."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

SECONDS = 20
CPU_SECONDS = 20
FILE_KIBIBYTES = 64_000
MEMORY_KIBIBYTES = 2_000_000
CHARACTERS = 12_000
NOBODY = "nobody"
_LIMITS = f"ulimit -t {CPU_SECONDS} -f {FILE_KIBIBYTES} -v {MEMORY_KIBIBYTES};"


def run_shell(command: str, folder: Path, seconds: float = SECONDS) -> tuple[int, str]:
    """Exit status, and both outputs together, their middle left out over `CHARACTERS`.

    124 is the status of a command that was stopped after `seconds`. Whatever the command left running is stopped.
    Started by root, it runs as `nobody`, who must be let into the folder (`hand_over`).
    """
    process = subprocess.Popen(
        ["/bin/bash", "-c", f"{_LIMITS}\n{command}"],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that what it starts can be stopped with it
        user=NOBODY if os.geteuid() == 0 else None,
        extra_groups=() if os.geteuid() == 0 else None,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        _stop(process)
        output, _ = process.communicate()
        status = 124
    finally:
        _stop(process)
    return status, shortened(output.decode(errors="replace"))


def hand_over(folder: Path) -> None:
    """Let commands write in a folder that this program made, with what is in it."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, NOBODY)


def shortened(text: str) -> str:
    """The text, or its first and last halves of `CHARACTERS` with what is missing named between them."""
    if len(text) <= CHARACTERS:
        return text
    half = CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop its own session: this command's processes and no others. There may be none left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
