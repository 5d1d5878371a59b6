"""Hand-made runs that hold one cut of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.view import Inspection, inspect_run

WORDS = ["alder", "birch", "cedar", "daphne", "elm", "fir", "gorse", "hazel", "ivy", "juniper", "larch", "maple"]
SCRIPT = [f"{word} = {word} + 1\n" for word in WORDS] + [f"{word}.run()\n" for word in WORDS]
LIKE = [*SCRIPT]
for _place, _word in zip(range(2, 23, 3), WORDS, strict=False):
    LIKE[_place] = f"{_word}.stop()\n"
NEW = [line for line in LIKE if "stop" in line]
LISTING = [f"/workspace/project/source/library/{word}.py\n" for word in WORDS]
NUMBERED = [f"{number}: {line}" for number, line in enumerate(LISTING, 1)]
SHIFTED = [f"{number}: {line}" for number, line in enumerate(LISTING, 11)]

PRICES = ". ".join(f"the {word} costs {number} coins, and another {word} less" for number, word in enumerate(WORDS * 4))
OTHER_PRICES = PRICES.replace("costs 5 ", "costs 6 ").replace("costs 45 ", "costs 46 ")
"""Two windows of the encoder, each near its counterpart in `PRICES`."""


def chat(*results: str, **fields: Any) -> Run:
    """A run with one tool result a turn; `fields` go into the assistant's messages."""
    turns = [({"role": "assistant", "content": "next", **fields}, {"role": "tool", "content": one}) for one in results]
    return Run(
        "hand-made", "test", ({"role": "user", "content": "go"}, *(message for turn in turns for message in turn))
    )


def exact(count_tokens: Callable[[str], int] = len, **options: Any) -> Compactor:
    return Compactor(CompactorConfig(profile="exact", **options), count_tokens)


def inspect_guarded(encoder: Encoder, count_tokens: Callable[[str], int]) -> Inspection:
    """A window like an earlier one, a listing with a short name, and a result that repeats with other numbers."""
    run = chat(*("".join(lines) for lines in (SCRIPT, LIKE, LISTING, NUMBERED, SHIFTED)))
    config = CompactorConfig(profile="guarded", directory_aliases=True)
    return inspect_run(run, Compactor(config, count_tokens, encoder), count_tokens)


def inspect_paper(encoder: Encoder, count_tokens: Callable[[str], int]) -> Inspection:
    """Two windows near earlier ones, and lines that are dropped without a stub."""
    run = chat(PRICES, OTHER_PRICES, "a line\nwith more\n", "first\na line\nwith more\n")
    return inspect_run(run, Compactor(CompactorConfig(profile="paper"), count_tokens, encoder), count_tokens)
