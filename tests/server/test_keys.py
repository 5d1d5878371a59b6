"""What a server with an API key does for those who have none."""

from __future__ import annotations

from tests.server.clients import tokenized
from tests.server.conftest import LiveServer
from tests.server.talks import recorded


def test_every_route_of_the_plugin_refuses_a_missing_key(hooked: LiveServer) -> None:
    with hooked.client(with_key=False) as client:
        paths = client.get("/openapi.json").json()["paths"]
        ours = {path: methods for path, methods in paths.items() if "lam" in path.split("/")}
        codes = {
            (method, path): client.request(method, path.replace("{identity}", "0")).status_code
            for path, methods in ours.items()
            for method in methods
        }
    assert len(codes) == 8
    assert set(codes.values()) == {401}


def test_tokenize_without_a_key_runs_no_compaction(hooked: LiveServer) -> None:
    messages = recorded()
    without_key = tokenized(hooked, messages, with_key=False)
    assert without_key == tokenized(hooked, messages, options=False)
    assert without_key != tokenized(hooked, messages)
