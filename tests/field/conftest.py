"""Compactors of every profile over the real tokenizer and the real encoder, whose embeddings are kept for the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pytest

from lam_vllm import Compactor, make_config
from lam_vllm.encoders.base import Encoder, EncoderLike
from lam_vllm.types import Embedding, Message
from tests.redis_server import RedisServer

from .agent import MODELS, Answer, Make


class Remembering(EncoderLike):
    """The encoder with every embedding kept: it is a pure function, and each case compacts the same text often."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._encode = lru_cache(maxsize=None)(encoder.encode)

    def encode(self, text: str) -> Embedding:
        return self._encode(text).copy()


@pytest.fixture(scope="session")
def remembering(encoder: Encoder) -> Encoder:
    return Remembering(encoder)


def _maker(profile: str, count_tokens: Callable[[str], int], encoder: Encoder) -> Make:
    def make(**options: object) -> Compactor:
        config = make_config({"profile": profile, **options})
        return Compactor(config, count_tokens, None if profile == "exact" else encoder)

    return make


@pytest.fixture(params=["exact", "guarded", "paper"])
def make(request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder) -> Make:
    """Builds a compactor of each profile."""
    return _maker(request.param, count_tokens, remembering)


@pytest.fixture(params=["exact", "guarded"])
def make_careful(request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder) -> Make:
    """Builds a compactor of each profile that loses no line (`paper` loses what the paper loses)."""
    return _maker(request.param, count_tokens, remembering)


@pytest.fixture(scope="session")
def served_tokenizer() -> Any:
    """The served model's tokenizer with its chat template."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODELS / "smollm2")


@pytest.fixture(scope="session")
def prompt_ids(served_tokenizer: Any) -> Callable[[Sequence[Message]], list[int]]:
    """Prompt token ids of messages, by the served model's chat template."""

    def render(messages: Sequence[Message]) -> list[int]:
        text = served_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(served_tokenizer(text, add_special_tokens=False)["input_ids"])

    return render


@pytest.fixture(scope="session")
def answers(served_tokenizer: Any) -> Answer:
    """The served model's greedy answers to questions, each asked right after the messages."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODELS / "smollm2", dtype=torch.float32).eval()

    def generate(messages: Sequence[Message], questions: Sequence[str]) -> list[str]:
        chats = [[*messages, {"role": "user", "content": question}] for question in questions]
        prompts = [
            served_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in chats
        ]
        batch = served_tokenizer(
            prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
        )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # threads that wait for each other on a busy machine take minutes
        with torch.inference_mode():
            output = model.generate(**batch, max_new_tokens=12, do_sample=False, pad_token_id=model.config.eos_token_id)
        torch.set_num_threads(threads)
        said: list[str] = served_tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :])
        return said

    return generate


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a real Redis listens."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.stop()
