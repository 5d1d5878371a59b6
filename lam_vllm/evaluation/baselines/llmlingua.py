"""LLMLingua-2 (Pan et al., arXiv 2403.12968): a trained token classifier drops the words it finds dispensable."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.baselines.unavailable import BaselineUnavailableError
from lam_vllm.evaluation.corpus import Run

XLM_ROBERTA_LARGE = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
BERT_MULTILINGUAL = "microsoft/llmlingua-2-bert-base-multilingual-cased-meetingbank"
FAMILIES = {"xlm-roberta": "xlm-roberta-large", "bert": "bert-base-multilingual-cased"}
"""By a checkpoint's model type, the words in a model's name from which the library tells how words begin."""
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")


class LLMLingua2:
    """A `Method`: of each tool result about the share `rate` of its words stays, line ends included.

    `weights` is a folder or a model hub's name. What stays is words of the text, so lines are judged verbatim as for
    every other method: a line counts only if none of its words went. Words are weighed by the served model's tokens,
    where the library asks for those of a model behind an API. Runs on the CPU.

    Raises:
        MissingExtraError: llmlingua is not installed.
        OptionError: the rate is not above 0 and below 1.
        BaselineUnavailableError: the weights are neither here nor can be fetched, or are of another kind of model.
    """

    seed = 0
    verbatim = True

    def __init__(self, name: str, weights: str, rate: float, count_tokens: Callable[[str], int]) -> None:
        if find_spec("llmlingua") is None:
            raise MissingExtraError("LLMLingua-2", "eval")
        if not 0.0 < rate < 1.0:
            raise OptionError("llmlingua rate", rate, "a number above 0 and below 1")
        self.name = name
        self.setting = f"rate={rate:g}"
        self._rate = rate
        self._count_tokens = count_tokens
        self._folder = find_weights(weights)
        self._family = _family(self._folder, weights)

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with the words that stay; a text of which none would stay is left whole."""
        observations = observations_of(run)
        return with_observations(run, observations, [self._compress(each.text) for each in observations])

    def _compress(self, text: str) -> str:
        if not text.strip():
            return text
        answer = self._compressor.compress_prompt_llmlingua2([text], rate=self._rate, force_tokens=["\n"])
        return str(answer["compressed_prompt"]) or text

    @cached_property
    def _compressor(self) -> Any:
        from llmlingua import PromptCompressor

        count_tokens = self._count_tokens

        class Compressor(PromptCompressor):  # type: ignore[misc]
            """The library's, without the tokenizer that its constructor downloads."""

            def __init__(self, folder: Path, family: str) -> None:
                self.model_name = family
                self.oai_tokenizer = _ServedTokens(count_tokens)
                self.load_model(str(folder), "cpu", {"trust_remote_code": False})
                self.init_llmlingua2()

        return Compressor(self._folder, self._family)


class _ServedTokens:
    """As much of a tokenizer as the library uses: how many tokens a text has."""

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self._count_tokens = count_tokens

    def encode(self, text: str) -> range:
        return range(self._count_tokens(text))


def find_weights(weights: str) -> Path:
    """The folder of a checkpoint: the folder itself, or that of a hub's model, fetched if it is not here.

    Raises:
        BaselineUnavailableError: it is neither here nor can be fetched.
    """
    if Path(weights).is_dir():
        return Path(weights)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(weights, allow_patterns=list(_FILES)))
    except Exception as error:  # the hub's client raises many kinds for a model that is not there or cannot be reached
        reason = f"no weights {weights!r}: no such folder, not in the hub's cache, and the hub gave none"
        raise BaselineUnavailableError(f"{reason} ({type(error).__name__})") from error


def _family(folder: Path, weights: str) -> str:
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError) as error:
        raise BaselineUnavailableError(f"no weights {weights!r}: config.json: {error}") from error
    if kind not in FAMILIES:
        raise BaselineUnavailableError(f"weights {weights!r} are of type {kind!r}; needed: {', '.join(FAMILIES)}")
    return FAMILIES[kind]
