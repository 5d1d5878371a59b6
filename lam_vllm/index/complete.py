"""The windows of what no compaction looked at, embedded when nobody waits for it, so that they can be found as well."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from lam_vllm.encoders.base import Encoder, traits_of
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.index.nouns import PrefixWindows
from lam_vllm.memory import SeenWindow
from lam_vllm.stopwatch import Stopwatch
from lam_vllm.types import Embedding, Window
from lam_vllm.windows import fixed_windows

AT_ONCE = 8
"""Windows that wait for the encoder together: a request that comes meanwhile waits for one batch at most."""
MOST_CUT = 10_000
"""Texts whose cuts are remembered, so that a history is not tokenised with every turn."""


class Completer:
    """Cuts and embeds the gaps of prefixes. Safe to use from several threads."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._cuts: OrderedDict[bytes, tuple[Window, ...]] = OrderedDict()
        self._lock = Lock()

    def complete(
        self, salt: str, prefix: PrefixWindows, wanted: Callable[[], bool] = lambda: True, *, background: bool = False
    ) -> PrefixWindows:
        """The prefix with windows in place of its gaps, as many of the first as `max_windows`, and its rows with them.

        Ends early, with the gaps left out, when it is not `wanted` any more. In the `background` nothing is encoded
        before the windows of a request.

        Raises:
            EncoderError: the encoder failed.
        """
        new, uncovered = self._new_windows(prefix)
        if not new:
            return replace(prefix, gaps=(), uncovered=uncovered)
        embeddings = RequestEncoder(self._encoder, Stopwatch(), salt, background=background)
        rows: list[Embedding] = []
        for start in range(0, len(new), AT_ONCE):
            if not wanted():
                return prefix.without_gaps()
            texts = [text for _, text in new[start : start + AT_ONCE]]
            embeddings.prepare(texts)
            rows += map(embeddings.embed, texts)
        error = traits_of(self._encoder).embedding_error if embeddings.guard_band else 0.0
        merged = _merged(prefix, [window for window, _ in new], rows)
        return replace(merged, gaps=(), uncovered=uncovered, embedding_error=max(prefix.embedding_error, error))

    def _new_windows(self, prefix: PrefixWindows) -> tuple[list[tuple[SeenWindow, str]], int]:
        """The windows of the gaps with their texts, and how many characters are in none: those after the cap."""
        new: list[tuple[SeenWindow, str]] = []
        uncovered = 0
        for gap in prefix.gaps:
            windows = self._cut(gap.own_text) if len(new) < prefix.max_windows else ()
            windows = windows[: prefix.max_windows - len(new)]
            for window in windows:
                start, end = gap.start + window.start, gap.start + window.end
                new.append((SeenWindow(*gap[:3], start, end, -1), gap.text[start:end]))
            uncovered += gap.end - gap.start - (windows[-1].end if windows else 0)
        return new, uncovered

    def _cut(self, text: str) -> tuple[Window, ...]:
        name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            cut = self._cuts.get(name)
        if cut is None:
            cut = fixed_windows(text, self._encoder.token_offsets, self._encoder.window_tokens)
        with self._lock:
            self._cuts[name] = cut
            self._cuts.move_to_end(name)
            while len(self._cuts) > MOST_CUT:
                self._cuts.popitem(last=False)
        return cut


def _merged(prefix: PrefixWindows, new: Sequence[SeenWindow], new_rows: Sequence[Embedding]) -> PrefixWindows:
    """All windows in the order of the text, and all rows in that of their windows."""
    both = [*((window, None) for window in prefix.windows), *zip(new, new_rows, strict=True)]
    both.sort(key=lambda pair: _order(pair[0]))
    windows: list[SeenWindow] = []
    rows: list[Embedding] = []
    moved: dict[int, int] = {}
    for window, row in both:
        if window.distance is not None:
            windows.append(window._replace(row=moved[window.row]))
            continue
        if row is None:
            moved[window.row] = len(rows)
        windows.append(window._replace(row=len(rows)))
        rows.append(prefix.rows[window.row] if row is None else row)
    return replace(prefix, windows=tuple(windows), rows=np.stack(rows))


def _order(window: SeenWindow) -> tuple[int, int, int]:
    return window.message, -1 if window.part is None else window.part, window.start
