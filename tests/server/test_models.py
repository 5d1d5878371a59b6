"""Settings of one model among several: they apply to its name, on every API, and to no other."""

from __future__ import annotations

import pytest

from tests.server.clients import rendered_ids
from tests.server.conftest import OTHER_NAME, LiveServer
from tests.server.talks import recorded


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_model_for_which_the_plugin_is_off_gets_its_prompts_as_they_came(
    api: str, plain: LiveServer, hooked: LiveServer
) -> None:
    messages = recorded()
    without = rendered_ids(plain, api, messages, options=None)
    compacted = rendered_ids(hooked, api, messages, options=None)
    assert len(compacted) < len(without)
    assert rendered_ids(hooked, api, messages, options=None, model=OTHER_NAME) == without
    assert rendered_ids(hooked, api, messages, options=True, model=OTHER_NAME) == compacted


def test_the_status_names_it(hooked: LiveServer) -> None:
    with hooked.client() as client:
        assert client.get("/v1/lam/status").json()["models"] == [OTHER_NAME]
