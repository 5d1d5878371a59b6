"""What a tool prints is text, whatever it looks like: to the hook, in every answer, on the page and in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer

from lam_vllm import Compactor, make_config, reconstruct
from lam_vllm.commands.inspect import summary
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.inspection.page import render_page
from lam_vllm.evaluation.inspection.view import inspect_run
from lam_vllm.serving.box import RequestBox, current_box, report_header
from lam_vllm.tokens import fast_token_counter
from tests.page.test_inspection import parsed
from tests.serving.fakes import RefusedError, Server, count_words, with_client

from .agent import MODELS, MODULE, OTHER, Make, agent, emitted
from .hostile import CONTROL_TOKENS, HOSTILE, IDENTITY, MARK, REFERENCES

REPORTED = {
    "outcome",
    "original_tokens",
    "prefilled_tokens",
    "milliseconds",
    "profile",
    "algorithm",
    "removed_tokens",
    "stub_tokens",
    "delta_hat",
    "prefix",
    "reasons",
}
each_text = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def around(text: str) -> list[dict[str, Any]]:
    """A conversation in which a tool printed this between two equal results."""
    return agent(MODULE, text, MODULE)


def unmarked(text: str) -> str:
    """A result as it was before the mark of one that reads like a reference."""
    return text[1:] if text.startswith("\\") and text[1:] in HOSTILE.values() else text


@pytest.fixture(scope="module")
def count_tokens() -> Callable[[str], int]:
    """Tokens as the server counts them: a lone surrogate is no reason to fail."""
    return fast_token_counter(Tokenizer.from_file(str(MODELS / "smollm2/tokenizer.json")))


@pytest.fixture(params=["exact", "guarded"])
def make(request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder) -> Make:
    """Builds a compactor of each profile that loses no line."""
    return lambda **options: Compactor(make_config({"profile": request.param, **options}), count_tokens, remembering)


@each_text
def test_it_reaches_the_model_as_it_is_and_changes_nothing_else(make: Make, text: str) -> None:
    compaction, without = make().compact(around(text)), make().compact(around(OTHER))
    first, middle, last = emitted(compaction)
    assert unmarked(middle) == text
    assert (first, last) == (emitted(without)[0], emitted(without)[2])
    assert [{**message, "content": ""} for message in compaction.messages] == [
        {**message, "content": ""} for message in around(text)
    ]


@each_text
def test_printed_again_it_is_read_back_byte_for_byte(count_tokens: Callable[[str], int], text: str) -> None:
    compactor = Compactor(make_config({"profile": "exact", "min_tokens": 0}), count_tokens)
    messages = agent(text, f"{text}\n{MODULE}", MODULE, text, f"{MODULE}\n{text}")
    assert reconstruct(compactor.compact(messages).messages) == messages


@pytest.mark.parametrize("text", REFERENCES.values(), ids=REFERENCES.keys())
def test_what_reads_like_a_reference_is_told_apart_from_ours(make: Make, text: str) -> None:
    compaction = make().compact(agent(MODULE, f"{text}\n{MODULE}", MODULE))
    _, middle, last = emitted(compaction)
    assert middle in (f"\\{text}\n{MODULE}", f"{text}\n{MODULE}")
    assert middle.startswith("\\")
    assert last.startswith("[result 1 repeats]")


tokens = st.sampled_from(
    [*CONTROL_TOKENS, *(token[:-2] for token in CONTROL_TOKENS), "|>", "s>", "end|>", "\n", " ax "]
)


@given(st.lists(st.lists(tokens, max_size=12).map("".join), min_size=1, max_size=4), st.sampled_from(["\n", " ; ", ""]))
def test_no_cut_puts_a_control_token_together(texts: list[str], between: str) -> None:
    config = make_config({"profile": "exact", "min_tokens": 0, "directory_aliases": True})
    long = between.join([*texts, MODULE.replace("\n", between or "; "), *texts])
    messages = agent(long, long, *texts, long + long)
    for before, after in zip(messages, Compactor(config, len).compact(messages).messages, strict=True):
        made = [token for token in CONTROL_TOKENS if token in after["content"] and token not in before["content"]]
        assert made == []


@each_text
def test_it_turns_no_option_and_no_salt(text: str) -> None:
    server = Server()
    asyncio.run(server.ask(around(text)))
    assert server.counted("changed", "none") == 1
    asyncio.run(server.ask(around(text), cache_salt="b"))
    report = server.box.settled[-1].report
    assert report is not None and report.work.known_messages == 0
    assert server.service.admission.switch.on


@each_text
def test_the_report_header_holds_figures_alone(text: str) -> None:
    server = Server()
    asyncio.run(server.ask(around(text)))
    header = report_header(server.box.settled)
    assert header.isascii() and not set(header) & set(b"\r\n\x00\x1b<") and MARK.encode() not in header
    assert json.loads(header).keys() <= REPORTED


@each_text
def test_the_metrics_hold_no_series_and_no_label_of_it(text: str) -> None:
    page, harmless = (scraped(each) for each in (text, OTHER))
    assert MARK not in page
    assert series(page) == series(harmless)


def scraped(text: str) -> str:
    server = Server()
    asyncio.run(server.ask(around(text), RequestBox(salt_header=text), user=text, model=text))
    with pytest.raises(RefusedError):
        asyncio.run(server.ask(around(text), lam={text: text}))
    page: str = generate_latest(server.registry).decode()
    return page


def series(page: str) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Names and labels of every sample but of reasons, which say that a text was kept whole."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@each_text
def test_the_routes_hand_it_on_in_json(text: str) -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        body = json.dumps({"messages": around(text), "cache_salt": "a"})
        answer = await client.post("/compact", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert answer.content.isascii()
        assert unmarked(answer.json()["messages"][5]["content"]) == text
        record = next(entry["record"] for entry in answer.json()["decisions"] if entry["record"])
        found = await client.get(f"/records/{record}", headers={"x-lam-cache-salt": "a"})
        assert found.json()["text"] == MODULE
        warmed = await client.post(
            "/warm", content=json.dumps({"text": text, "wait": True}), headers={"content-type": "application/json"}
        )
        assert warmed.status_code == 200

    with_client(server, use)


@pytest.mark.parametrize("identity", [IDENTITY, "..%2Fstatus", "%0d%0aset-cookie:a=b", "%00", "a" * 4_000, "%F0%9F"])
def test_an_id_that_a_tool_made_up_is_unknown(identity: str) -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/compact", json={"messages": around(HOSTILE["an id of a record"])})
        answer = await client.get(f"/records/{identity}")
        assert answer.status_code == 404
        assert "set-cookie" not in answer.headers

    with_client(server, use)


@each_text
def test_the_page_shows_it_and_has_the_elements_that_it_always_has(text: str) -> None:
    pages = [page_of(each) for each in (text, OTHER)]
    elements, plain = map(parsed, pages)
    assert elements.names == plain.names and pages[0].isascii()
    assert [pages[0].count(sign) for sign in "<>&"] == [pages[1].count(sign) for sign in "<>&"]
    entries = [entry for turn in json.loads(elements.data)["turns"] for entry in turn["entries"]]
    blocks = [block["spans"] for entry in entries if entry["result"] for block in entry["blocks"]]
    assert [text] in blocks  # a cut is an object among its spans


def page_of(text: str) -> str:
    run = Run("hostile " + text, "test", tuple(around(text)))
    inspection = inspect_run(run, Compactor(make_config({"profile": "exact"}), count_words), count_words)
    assert MARK not in summary(inspection)
    return render_page(inspection)


def places(text: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Requests with the text wherever a client can put one, well formed or not."""
    yield around(text), {}
    yield around(text), {"user": text, "model": text, "cache_salt": text}
    yield around(text), {"lam": {text: text}}
    yield around(text), {"lam": {"profile": text}}
    yield around(text), {"vllm_xargs": {f"lam_{text}": 1}}
    for value in (text, [text], {text: text}, [[text]], None, [{"type": text, text: text}], [{"type": "text"}]):
        yield [{"role": "tool", "content": value}, {"role": "tool", "tool_call_id": value, "content": MODULE}], {}
        yield [{"role": value, "content": MODULE}, {"role": "assistant", "tool_calls": value, "content": text}], {}
        yield [{"role": "assistant", "tool_calls": [value, {"id": value, "function": value}]}, *around(text)], {}
    yield [text, {text: text}], {}


@each_text
def test_no_line_of_the_log_is_made_by_it(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server, header = Server(), RequestBox(options_header=f'{{"{MARK}": 1}}', salt_header=text)

    async def run() -> None:
        for messages, fields in places(text):
            for box in (RequestBox(), header):
                current_box.set(box)
                with suppress(RefusedError):  # of a header, or a field, that names an option which there is not
                    await server.service.admission.admit(SimpleNamespace(**fields), messages)
        await server.service.admission.ended()

    asyncio.run(run())
    assert sum(server.service.metrics.counts("requests").values()) > 40
    assert MARK not in caplog.text
