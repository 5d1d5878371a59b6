"""Which windows admission will ask the encoder about, guessed from the texts alone, so that work can begin early."""

from __future__ import annotations

from collections.abc import Container, Iterable

from lam_vllm.config import Profile
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.lines import cut_text
from lam_vllm.windows import fixed_windows, line_windows

LEAST_NEW_CHARACTERS = 40
"""A window with fewer characters in lines that were not seen before is one that `exact` removes."""


def windows_ahead(
    texts: Iterable[str], profile: Profile | None, encoder: RequestEncoder, seen: Container[object] = ()
) -> list[str]:
    """Windows of these texts in the order in which they will be asked about; a wrong guess costs time only.

    `seen` holds lines that the conversation showed before.
    """
    cut = fixed_windows
    if profile != "paper":
        cut, texts = line_windows, (text for text in texts if cut_text(text)[1] == "line")
    windows = (
        text[window.start : window.end]
        for text in texts
        for window in cut(text, encoder.token_offsets, encoder.window_tokens)
    )
    return list(windows if profile == "paper" else _new(windows, seen))


def _new(windows: Iterable[str], seen: Container[object]) -> Iterable[str]:
    here: set[str] = set()
    for window in windows:
        lines = window.split("\n")
        if sum(len(line) for line in lines if line not in here and line not in seen) >= LEAST_NEW_CHARACTERS:
            yield window
        here.update(lines)
