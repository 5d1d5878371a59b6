"""SIGTERM: a stream that was begun is answered to its end, what waits to be written is written, and nothing runs on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from lam_vllm.records import open_records
from lam_vllm.stores import StoreSettings
from tests.server.asking import fleet_key, removed_record, render
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.fleet import STORE_BYTES, Fleet, status
from tests.server.talks import body, by_user, recorded
from tests.server.waiting import is_running, wait_for

STOP_SECONDS = 90
ANSWER_TOKENS = 64


def descendants(process: int) -> Iterator[int]:
    """The processes that this one started, and those that they did."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def terminate(server: LiveServer) -> None:
    server.process.send_signal(signal.SIGTERM)


def assert_ended(server: LiveServer, running: list[int]) -> None:
    assert server.process.wait(STOP_SECONDS) == 0
    wait_for(lambda: not any(map(is_running, running)))


def events(server: LiveServer) -> Iterator[str]:
    """The events of a streamed answer of `ANSWER_TOKENS` tokens."""
    fields = {"model": SERVED_NAME, **body("chat", recorded()), "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    path, fields = "/v1/chat/completions", {**fields, "stream": True}
    with server.client() as client, client.stream("POST", path, json=fields) as answer:
        yield from filter(None, answer.iter_lines())


def test_a_stream_that_was_begun_is_answered_to_its_end(hooked: LiveServer) -> None:
    running = list(descendants(hooked.process.pid))
    answer = events(hooked)
    first = [next(answer), next(answer)]
    terminate(hooked)
    rest = list(answer)
    assert rest[-1] == "data: [DONE]"
    assert len(first) + len(rest) > ANSWER_TOKENS
    assert_ended(hooked, running)


def test_what_was_removed_is_kept_and_no_process_is_left(fleet: Fleet) -> None:
    messages, salt = by_user("the last", recorded()), "the last"
    running = list(descendants(fleet.server.process.pid))
    with fleet.clients() as clients:
        assert set(clients) <= set(running)
        workers = {status(client)["encoder"]["process"] for client in clients.values()}
        assert workers <= set(running)
        one, _ = clients.values()
        identity = removed_record(one, messages, salt)
        render(one, messages, cache_salt=salt)
        terminate(fleet.server)
    assert_ended(fleet.server, running)
    peer = open_records(StoreSettings(fleet.redis.url, STORE_BYTES, 3_600), fleet_key())
    assert peer.look_up(salt, identity).text is not None
    peer.close()
