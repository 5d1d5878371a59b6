"""A small agent: a chat model with one tool, a shell in a folder of its own, over any OpenAI-compatible URL.

A reply's first ```bash block is run and its output sent back as a user message (the form of mini-swe-agent, which every
chat model and server takes); a reply without one ends the attempt.
"""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
from agent_shell import hand_over, run_shell

from lam_vllm.errors import InputFileError, LamError
from lam_vllm.evaluation.documents import read_documents

REQUEST_SECONDS = 600.0
SYSTEM = """\
You solve tasks in a folder on a Linux computer. To run a shell command, reply with one block:
```bash
the command
```
You then see what it printed. Look before you change anything, check what you did, and when the task is done reply
with a sentence and no block."""
_BLOCK = re.compile(r"```(?:bash|sh|shell)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
End = Literal["done", "turns", "context"]
"""Why an attempt ended: the model said so; the limit of turns; the prompt no longer fitted."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, the `files` it begins with, and a command that succeeds in the folder once it is solved."""

    id: str
    prompt: str
    check: str
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """Who answers, how it is asked, and how often at most."""

    url: str
    name: str
    api_key: str | None = None
    temperature: float = 0.7
    max_tokens: int = 512
    max_turns: int = 20


def read_tasks(path: str | Path) -> list[Task]:
    """The tasks of a file of JSON lines with the fields of `Task`.

    Raises:
        InputFileError: as `read_documents`, or a line is no such task; names it.
    """
    tasks = []
    for line, document in read_documents(path):
        try:
            tasks.append(Task(**document))
        except TypeError as error:
            raise InputFileError(
                path, f"expected a task with id, prompt, check and maybe files: {error}", line
            ) from None
    return tasks


def attempt(task: Task, model: Model, options: str, seed: int) -> dict[str, Any]:
    """One attempt as a recorded run: `messages`, with tool output in role `tool`; `resolved`, whether the check then
    succeeds; the server's `usages` by turn; and why it `ended`. `options` goes into the header `x-lam`.

    Raises:
        LamError: the server cannot be reached, or refuses a request for another reason than its length.
    """
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.prompt}]
    run: dict[str, Any] = {"id": f"{task.id}#{seed}", "messages": messages, "usages": [], "ended": "turns"}
    salt = uuid.uuid4().hex  # so that no attempt warms the prefix cache of another
    with tempfile.TemporaryDirectory(prefix="agent-quality-") as name:
        folder = Path(name)
        for file, text in task.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        hand_over(folder)
        for _ in range(model.max_turns):
            end = _turn(run, model, options, {"seed": seed, "cache_salt": salt}, folder)
            if end is not None:
                run["ended"] = end
                break
        run["resolved"] = run_shell(task.check, folder)[0] == 0
    return run


def _turn(run: dict[str, Any], model: Model, options: str, extra: dict[str, Any], folder: Path) -> End | None:
    """One reply, and what its command printed; why the attempt is over, if it is."""
    messages: list[dict[str, str]] = run["messages"]
    answer = _ask(model, [_as_sent(message) for message in messages], options, extra)
    if answer is None:
        return "context"
    reply = str(answer["choices"][0]["message"]["content"] or "")
    messages.append({"role": "assistant", "content": reply})
    run["usages"].append({"usage": answer["usage"]})
    block = _BLOCK.search(reply)
    if block is None:
        return "done"
    status, output = run_shell(block.group(1), folder)
    messages.append({"role": "tool", "content": f"exit status {status}\n{output}"})
    return None


def _as_sent(message: dict[str, str]) -> dict[str, str]:
    return {**message, "role": "user"} if message["role"] == "tool" else message


def _ask(model: Model, messages: list[dict[str, str]], options: str, extra: dict[str, Any]) -> Any:
    """The server's answer; None where the prompt does not fit."""
    body = {
        "model": model.name,
        "messages": messages,
        "temperature": model.temperature,
        "max_tokens": model.max_tokens,
        **extra,
    }
    headers = {"x-lam": options} | ({"Authorization": f"Bearer {model.api_key}"} if model.api_key else {})
    try:
        response = httpx.post(f"{model.url}/v1/chat/completions", json=body, headers=headers, timeout=REQUEST_SECONDS)
    except httpx.TransportError as error:
        raise LamError(f"{model.url}: {error}") from None
    if response.status_code == httpx.codes.BAD_REQUEST and "context length" in response.text:
        return None
    if response.status_code != httpx.codes.OK:
        raise LamError(f"{model.url}: {response.status_code}: {response.text[:500]}")
    return json.loads(response.text)
