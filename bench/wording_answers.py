"""What a served model answers, kept as rows in a file: a request that was answered once is not sent again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from wording_questions import Question, occurrences

from lam_vllm.errors import LamError
from lam_vllm.types import Message

ANSWER_TOKENS = 32
CONCURRENT = 4
TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Row:
    """One answer. `request` is a digest of model, messages, begun answer and limits.

    `right` and `copied` (it prints what only the plugin's words hold) follow from `reply`.
    """

    model: str
    question: str
    variant: str
    request: str
    prompt_tokens: int
    reply: str
    right: bool = False
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, the messages read in one variant, and the beginnings of what the plugin printed in them."""

    question: Question
    variant: str
    messages: Sequence[Message]
    marks: Sequence[str] = ()

    def request(self, model: str) -> dict[str, Any]:
        """The body of the chat request, decoded greedily; vLLM goes on with the begun answer."""
        begun = {"role": "assistant", "content": self.question.begun}
        return {
            "model": model,
            "messages": [*self.messages, begun],
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "continue_final_message": True,
            "add_generation_prompt": False,
        }


class Server:
    """A vLLM server at `url` and the model asked there (None: the first it serves)."""

    def __init__(self, url: str, model: str | None, api_key: str | None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(
            base_url=url.rstrip("/").removesuffix("/v1"), headers=headers, timeout=TIMEOUT_SECONDS
        )
        self.model = model or str(self._get("/v1/models")["data"][0]["id"])

    def has_plugin(self) -> bool:
        """Whether lam-vllm answers there."""
        return self._client.get("/v1/lam/status").status_code == 200

    def answer(self, asking: Asking) -> Row:
        """The model's answer with the plugin off: the messages are sent as they are to be read."""
        body = asking.request(self.model)
        reply = self._post("/v1/chat/completions", body, "off")
        return Row(
            model=self.model,
            question=asking.question.id,
            variant=asking.variant,
            request=digest(body),
            prompt_tokens=reply["usage"]["prompt_tokens"],
            reply=str(reply["choices"][0]["message"]["content"]),
        )

    def prompt(self, asking: Asking, plugin: Mapping[str, Any] | None) -> list[int]:
        """The token ids that the server makes of the messages, with these options of the plugin (None: off)."""
        body = asking.request(self.model)
        header = json.dumps(plugin) if plugin else "off"
        tokens: list[int] = self._post("/tokenize", body, header)["tokens"]
        return tokens

    def _get(self, path: str) -> Any:
        return _json(self._client.get(path))

    def _post(self, path: str, body: Mapping[str, Any], plugin: str) -> Any:
        return _json(self._client.post(path, json=body, headers={"x-lam": plugin}))


def answers(server: Server, askings: Iterable[Asking], kept: Path) -> list[Row]:
    """A row for each asking: from the file `kept`, or else asked and added to it at once."""
    known = {row.request: row for row in read_rows(kept)}
    askings = list(askings)
    requests = [digest(asking.request(server.model)) for asking in askings]
    missing = {name: asking for name, asking in zip(requests, askings, strict=True) if name not in known}
    kept.parent.mkdir(exist_ok=True)
    with kept.open("a", encoding="utf-8") as file, ThreadPoolExecutor(CONCURRENT) as pool:
        for done, row in enumerate(pool.map(server.answer, missing.values()), start=1):
            file.write(_line(row))
            file.flush()
            known[row.request] = row
            if done % 50 == 0:
                print(f"{done} of {len(missing)} answers")
    return [_row_of(asking, known[name]) for asking, name in zip(askings, requests, strict=True)]


def _row_of(asking: Asking, row: Row) -> Row:
    """The row of a request under the names of this asking: where two wordings say the same, the answer is shared."""
    right = occurrences(asking.question.answer, row.reply) > 0
    copied = any(mark in row.reply for mark in asking.marks)
    return replace(row, question=asking.question.id, variant=asking.variant, right=right, copied=copied)


def _line(row: Row) -> str:
    return json.dumps(asdict(row), ensure_ascii=False) + "\n"


def keep_only(rows: Sequence[Row], kept: Path) -> None:
    """Replace the file's rows by these: those of questions that are no longer asked go."""
    fresh = kept.with_suffix(".part")
    fresh.write_text("".join(map(_line, rows)), encoding="utf-8")
    fresh.replace(kept)


def read_rows(kept: Path) -> list[Row]:
    """The rows of a file that may not be there, or may end in a line cut short."""
    if not kept.exists():
        return []
    lines = kept.read_text(encoding="utf-8").splitlines()
    return [Row(**json.loads(line)) for line in lines if line.endswith("}")]


def digest(body: Mapping[str, Any]) -> str:
    """Names a request."""
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _json(response: httpx.Response) -> Any:
    if response.is_error:
        raise LamError(f"{response.request.url}: {response.status_code}: {response.text[:300]}")
    return response.json()
