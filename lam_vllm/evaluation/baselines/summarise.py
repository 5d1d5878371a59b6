"""Summarisation of tool output by a language model behind any OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import ceil
from typing import Any

from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.baselines.unavailable import BaselineUnavailableError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.client import ServerError

MIN_TOKENS = 64
"""Shorter texts are not worth a request and stay whole."""
PIECE_TOKENS = 2_000
"""Longer texts are summarised in pieces of whole lines, so that any served model can read them."""
LINE_CHARACTERS = 4_000
"""Longer lines (JSON) are cut, for the same reason."""
PROMPT = (
    "Summarise this part of a tool's output for the coding agent that asked for it. Keep names, paths, line numbers, "
    "values and errors. Use at most {tokens} tokens. Write the summary only.\n\n{text}"
)


class Summaries:
    """A `Method`: each tool result is replaced by a model's summary of at most the share `ratio` of its tokens.

    `url` is the server's root (`http://localhost:8000`), `model` None for the first that it serves. The text is new,
    so no verbatim measure says anything of it. A piece whose summary is empty or no shorter stays as it was, and is
    counted in `kept_pieces`. Greedy decoding with a fixed seed, which makes answers as repeatable as the server is.

    Raises:
        MissingExtraError: the openai client is not installed.
        OptionError: the ratio is not above 0 and below 1, or the URL is not one of HTTP.
        BaselineUnavailableError: the server cannot be asked for its models.
    """

    name = "summaries"
    seed = 0
    verbatim = False

    def __init__(
        self,
        ratio: float,
        url: str,
        count_tokens: Callable[[str], int],
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        if find_spec("openai") is None:
            raise MissingExtraError("summarisation", "eval")
        if not 0.0 < ratio < 1.0:
            raise OptionError("summary ratio", ratio, "a number above 0 and below 1")
        if not url.startswith(("http://", "https://")):
            raise OptionError("summary url", url, "http://HOST:PORT")
        from openai import OpenAI

        self.setting = f"rho={ratio:g}"
        self.kept_pieces = 0
        self._ratio = ratio
        self._count_tokens = count_tokens
        root = url.rstrip("/").removesuffix("/v1")
        self._client = OpenAI(base_url=f"{root}/v1", api_key=api_key or "none", max_retries=2)
        self._model = model or self._first_model()

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with summaries.

        Raises:
            ServerError: the server refused a request or cannot be reached; names it and gives its words.
        """
        observations = observations_of(run)
        return with_observations(run, observations, [self._summary(each.text) for each in observations])

    def _summary(self, text: str) -> str:
        if self._count_tokens(text) < MIN_TOKENS:
            return text
        return "\n".join(self._shorter(piece) for piece in _pieces(text, self._count_tokens))

    def _shorter(self, piece: str) -> str:
        tokens = self._count_tokens(piece)
        limit = ceil(self._ratio * tokens)
        summary = self._ask(PROMPT.format(tokens=limit, text=piece), limit)
        if summary and self._count_tokens(summary) < tokens:
            return summary
        self.kept_pieces += 1
        return piece

    def _ask(self, prompt: str, max_tokens: int) -> str:
        from openai import OpenAIError

        try:
            answer = self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=max_tokens,
                temperature=0.0,
                seed=self.seed,
            )
        except OpenAIError as error:
            raise ServerError(f"{self._client.base_url}: {error}", getattr(error, "status_code", None)) from error
        return (answer.choices[0].message.content or "").strip()

    def _first_model(self) -> str:
        from openai import OpenAIError

        try:
            return str(self._client.models.list().data[0].id)
        except (OpenAIError, IndexError) as error:
            raise BaselineUnavailableError(f"no summaries: {self._client.base_url}: {error}") from error


def _pieces(text: str, count_tokens: Callable[[str], int]) -> Iterator[str]:
    """The text as pieces of about `PIECE_TOKENS` each: whole lines, of which only giant ones are cut."""
    piece: list[str] = []
    tokens = 0
    for line in _readable_lines(text):
        more = count_tokens(line + "\n")
        if piece and tokens + more > PIECE_TOKENS:
            yield "\n".join(piece)
            piece, tokens = [], 0
        piece.append(line)
        tokens += more
    yield "\n".join(piece)


def _readable_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        for start in range(0, max(1, len(line)), LINE_CHARACTERS):
            yield line[start : start + LINE_CHARACTERS]
