"""MinHash over the words of windows (Broder 1997), as text deduplication tools use it: no encoder, only a tokenizer."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import xxhash

from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.evaluation.baselines.windowed import PlacedWindow, WindowEmbeddings
from lam_vllm.evaluation.corpus import Run

SHINGLE_WORDS = 5
PERMUTATIONS = 128
_WORD = re.compile(r"\w+|[^\w\s]")


class MinHashWindows:
    """A `Method`: a window that shares enough word shingles with an earlier retained one of its run becomes a stub.

    Candidates come from an index of MinHash signatures; the Jaccard index of the shingles themselves decides, and the
    earliest retained window stands for it. Windows are the encoder's, so that methods differ in their test alone.

    Raises:
        MissingExtraError: datasketch is not installed.
        OptionError: the threshold is not above 0 and below 1.
    """

    name = "minhash"
    seed = 0
    verbatim = True

    def __init__(self, threshold_jaccard: float, windows: WindowEmbeddings) -> None:
        if find_spec("datasketch") is None:
            raise MissingExtraError("MinHash", "eval")
        if not 0.0 < threshold_jaccard < 1.0:
            raise OptionError("minhash j", threshold_jaccard, "a number above 0 and below 1")
        self.setting = f"j={threshold_jaccard:g}"
        self._threshold_jaccard = threshold_jaccard
        self._windows = windows

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a stub for each window that repeats an earlier one closely enough."""
        from datasketch import MinHash, MinHashLSH

        windowed = self._windows.windowed(run)
        index = MinHashLSH(threshold=self._threshold_jaccard, num_perm=PERMUTATIONS)
        retained: dict[int, frozenset[str]] = {}
        dropped: dict[int, PlacedWindow] = {}
        for place, text in enumerate(windowed.texts()):
            these = shingles(text)
            signature = MinHash(num_perm=PERMUTATIONS, hashfunc=_hash)
            signature.update_batch(sorted(these))
            near = [
                other for other in index.query(signature) if jaccard(retained[other], these) >= self._threshold_jaccard
            ]
            if near:
                dropped[place] = windowed.windows[min(near)]
            else:
                index.insert(place, signature)
                retained[place] = these
        return windowed.without(dropped)


def shingles(text: str) -> frozenset[str]:
    """Every run of `SHINGLE_WORDS` words and signs of a text; of a shorter text all of it."""
    words = _WORD.findall(text)
    last = max(1, len(words) - SHINGLE_WORDS + 1)
    return frozenset(" ".join(words[place : place + SHINGLE_WORDS]) for place in range(last))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of what two sets hold together that both hold."""
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def _hash(shingle: str) -> int:
    return xxhash.xxh32_intdigest(shingle.encode(errors="surrogatepass"))
