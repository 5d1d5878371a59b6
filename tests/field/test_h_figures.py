"""Group H, F94 and F95: what figures may say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.serving.fakes import Server, with_client

from .agent import LINES, MODULE, OTHER, Make, agent, emitted, ledger, listing, numbered
from .operations import REPEATED, ask, counted, labels

EDITED = MODULE.replace("timeout=30)", "timeout=31)")
LISTING = listing("berth", "crew", "tide")


def texts() -> Iterator[tuple[str, str]]:
    """Results, two by two, of which the second is shortened in every way there is."""
    yield MODULE, EDITED
    yield numbered(LINES), numbered(["import sails", *LINES])
    yield ledger(0), ledger(1)
    yield LISTING, LISTING.replace("crew/forms", "crew/fines")
    yield OTHER, "tick tack tock, says the clock of the office\n" * 30


@pytest.mark.parametrize("aliases", [False, True])
def test_f94_what_is_reported_is_what_is_missing_from_the_text_that_goes_out(
    make_careful: Make, aliases: bool, count_tokens: Callable[[str], int]
) -> None:
    given = [text for pair in texts() for text in pair]
    compaction = make_careful(directory_aliases=aliases).compact(agent(*given))
    sizes = [
        (count_tokens(before), count_tokens(after)) for before, after in zip(given, emitted(compaction), strict=True)
    ]
    for place, (before, after) in enumerate(sizes):
        cuts = [cut for cut in compaction.decisions if cut.result == place + 1]
        saved = sum(cut.removed_tokens - cut.stub_tokens for cut in cuts)
        assert abs(before - after - saved) <= 2 * len(cuts)  # a tokenizer may merge over the end of a line
    assert len(compaction.decisions) >= 5 + aliases
    report = compaction.report
    assert sum(report.removed_tokens.values()) == sum(cut.removed_tokens for cut in compaction.decisions)
    assert report.stub_tokens == sum(cut.stub_tokens for cut in compaction.decisions)


def test_f94_a_request_is_counted_once_and_settled_once() -> None:
    server = Server()
    for turn in range(1, len(REPEATED) + 1):
        ask(server, REPEATED[:turn])
        assert len(server.box.settled) == 1
    assert sum(counted(server).values()) == len(REPEATED)
    assert server.registry.get_sample_value("lam:removal_ratio_count") == len(REPEATED)


def test_f94_a_compaction_without_an_engine_is_counted_once_and_settled_once() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        for _ in range(3):
            (await client.post("/compact", json={"messages": REPEATED})).raise_for_status()

    with_client(server, use)
    metrics = server.service.metrics
    assert {key: number for key, number in counted(server).items() if number} == {"compact/changed/none": 3}
    assert server.registry.get_sample_value("lam:removal_ratio_count") == 3
    (avoided,) = metrics.counts("uncached_tokens_avoided").values()  # of three equal requests: once
    original, prefilled = (metrics.counts(f"prompt_tokens_{name}")["compact"] for name in ("original", "prefilled"))
    assert 3 * avoided == original - prefilled > 0


def test_f94_a_dry_run_beside_an_engine_is_counted_nowhere() -> None:
    server = Server()
    before = labels(server), counted(server)

    async def use(client: httpx.AsyncClient) -> None:
        (await client.post("/compact", json={"messages": REPEATED})).raise_for_status()

    with_client(server, use)
    assert (labels(server), counted(server)) == before
    assert server.registry.get_sample_value("lam:removal_ratio_count") == 0


def test_f94_tokens_on_the_metrics_add_up_to_those_of_the_prompts() -> None:
    server = Server()
    ask(server, REPEATED)
    (settled,) = server.box.settled
    metrics = server.service.metrics
    assert metrics.counts("prompt_tokens_original")["chat"] == settled.original_tokens
    assert metrics.counts("prompt_tokens_prefilled")["chat"] == settled.prefilled_tokens
    (avoided,) = metrics.counts("uncached_tokens_avoided").values()
    assert avoided == settled.original_tokens - settled.prefilled_tokens > 0
    ratio = server.registry.get_sample_value("lam:removal_ratio_sum")
    assert ratio == pytest.approx(avoided / settled.original_tokens)


def test_f95_requests_of_which_nothing_was_removed_are_in_the_distribution() -> None:
    server = Server()
    for messages in (agent(MODULE), agent(OTHER), [{"role": "user", "content": "Good morning."}], REPEATED):
        ask(server, messages)

    def below(bound: str) -> float | None:
        return server.registry.get_sample_value("lam:removal_ratio_bucket", {"le": bound})

    assert (below("0.0"), below("0.1"), below("+Inf")) == (3, 3, 4)
