"""The queue of windows: nothing is lost, nothing is taken twice, and a small request is done in two batches."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.memo import Kind
from lam_vllm.encoders.queue import AHEAD_CHARACTERS, AHEAD_IN_A_ROW, LIKE, FairQueue, Group, Waiting
from lam_vllm.types import Embedding

LARGE = 400
"""Windows of a request of 200K tokens."""
FULL, REST = "w" * 1700, "w" * 300
"""Windows of 510 and of 90 tokens, which a request of 600 has."""

windows = st.lists(st.integers(1, 2000).map(lambda length: "w" * length), max_size=12)
batches = st.sampled_from((1, 2, 8))


def put(queue: FairQueue, *texts: str, group: Group | None = None, kind: Kind = "fast") -> list[Future[Embedding]]:
    """The futures of a request's windows that now wait."""
    futures: list[Future[Embedding]] = [Future() for _ in texts]
    queue.put(group or Group(), kind, zip(texts, futures, strict=True))
    return futures


def take(queue: FairQueue) -> tuple[Kind, list[Waiting]]:
    taken = queue.take()
    assert taken is not None
    return taken


def take_all(queue: FairQueue, count: int) -> list[tuple[Kind, list[Waiting]]]:
    """The batches that `count` windows come out in."""
    taken = []
    while count > 0:
        taken.append(take(queue))
        count -= len(taken[-1][1])
    return taken


def of(futures: list[Future[Embedding]], waiting: list[Waiting]) -> int:
    return sum(any(window.future is future for future in futures) for window in waiting)


@settings(deadline=None)
@given(
    requests=st.lists(st.tuples(windows, windows, st.booleans()), max_size=6), batch=batches, early=st.integers(0, 20)
)
def test_every_window_comes_out_once_and_like_lengths_share_a_batch(
    requests: list[tuple[list[str], list[str], bool]], batch: int, early: int
) -> None:
    queue = FairQueue(batch)
    put_in: list[tuple[Kind, Future[Embedding]]] = []
    requests_of: dict[Future[Embedding], int] = {}
    taken: list[tuple[Kind, list[Waiting]]] = []
    for number, (fast, canonical, background) in enumerate(requests):
        group, before = Group(background=background), len(put_in)
        put_in += [("fast", future) for future in put(queue, *fast, group=group)]
        put_in += [("canonical", future) for future in put(queue, *canonical, group=group, kind="canonical")]
        requests_of.update((future, number) for _, future in put_in[before:])
        left = len(put_in) - sum(len(waiting) for _, waiting in taken)
        taken += take_all(queue, min(early, left))
    taken += take_all(queue, len(put_in) - sum(len(waiting) for _, waiting in taken))
    came_out = [(kind, window.future) for kind, waiting in taken for window in waiting]
    assert sorted(came_out, key=str) == sorted(put_in, key=str)
    for kind, waiting in taken:
        leader = waiting[0]
        assert len(waiting) <= (1 if kind == "canonical" else batch)
        for window in waiting:
            like = window.length <= LIKE * leader.length and LIKE * window.length >= leader.length
            assert like or requests_of[window.future] == requests_of[leader.future]
    assert queue.close() == []


def test_a_canonical_window_goes_alone_and_before_the_rest_of_its_request() -> None:
    queue, group = FairQueue(8), Group()
    put(queue, *[FULL] * 5, group=group)
    (close,) = put(queue, FULL, group=group, kind="canonical")
    kind, waiting = take(queue)
    assert (kind, [window.future for window in waiting]) == ("canonical", [close])
    assert take(queue)[0] == "fast"


@settings(deadline=None)
@given(
    batch=st.sampled_from((1, 2, 7, 8)),
    large=st.lists(
        st.tuples(st.integers(3, LARGE), st.integers(1400, 2000), st.integers(0, 3)), min_size=1, max_size=6
    ),
    taken=st.integers(0, 40),
    canonical=st.booleans(),
)
def test_a_small_request_is_done_in_two_batches_whatever_larger_ones_wait(
    batch: int, large: list[tuple[int, int, int]], taken: int, canonical: bool
) -> None:
    queue = FairQueue(batch)
    for count, length, spread in large:
        group = Group()
        put(queue, *("w" * (length << place % (spread + 1)) for place in range(count)), group=group)
        if canonical:
            put(queue, FULL, group=group, kind="canonical")
    put(queue, *[FULL] * LARGE)  # so that a large one waits, however many batches are taken before
    for _ in range(taken):
        take(queue)
    small = put(queue, FULL, REST)
    assert sum(of(small, take(queue)[1]) for _ in range(2)) == 2


@pytest.mark.parametrize("kind", ["fast", "canonical"])
def test_what_is_in_the_background_has_a_turn_only_where_no_request_waits(kind: Kind) -> None:
    queue = FairQueue(8)
    behind = put(queue, *[FULL] * 20, group=Group(background=True), kind=kind)
    assert of(behind, take(queue)[1]) == (8 if kind == "fast" else 1), "nobody else is there"
    requests = [put(queue, *[FULL] * count) for count in (1, 30, 50)]
    taken = take_all(queue, 81)
    assert sum(of(behind, waiting) for _, waiting in taken) == 0, "not even to fill a batch"
    assert all(window.done() or window.running() for request in requests for window in request)
    put(queue, REST, group=Group(background=True))
    rest = take_all(queue, 21 - (8 if kind == "fast" else 1))
    assert sum(of(behind, waiting) for _, waiting in rest) == 20 - (8 if kind == "fast" else 1)


def test_small_requests_are_done_in_the_order_in_which_they_came() -> None:
    queue = FairQueue(1)
    put(queue, *[FULL] * LARGE)
    first, second = put(queue, FULL, REST), put(queue, FULL, REST)
    assert [take(queue)[1][0].future for _ in range(4)] == [*first, *second]


@settings(deadline=None)
@given(batch=batches, larger=st.integers(1, 5))
def test_a_stream_of_small_requests_does_not_stop_the_larger_ones(batch: int, larger: int) -> None:
    queue = FairQueue(batch)
    large = [put(queue, *[FULL] * LARGE) for _ in range(larger)]
    got = [0] * larger
    for _ in range((AHEAD_IN_A_ROW + 1) * larger):
        put(queue, REST, REST)
        waiting = take(queue)[1]
        got = [had + of(futures, waiting) for had, futures in zip(got, large, strict=True)]
    assert min(got) >= 1


@settings(deadline=None)
@given(batch=batches, count=st.integers(2, 5))
def test_requests_lead_in_turn_where_nothing_of_theirs_is_alike(batch: int, count: int) -> None:
    queue = FairQueue(batch)
    requests = [put(queue, *["w" * (100 * 3**place)] * 60) for place in range(count)]
    for _ in range(7):
        leaders = [take(queue)[1][0].future for _ in requests]
        assert [any(leader in request for leader in leaders) for request in requests] == [True] * len(requests)


def test_short_windows_are_not_passed_over_for_long_ones_of_two_other_requests() -> None:
    queue = FairQueue(8)
    long = [put(queue, *[FULL] * 60) for _ in range(2)]
    short = put(queue, *[REST] * 60)
    taken = [window for _ in range(6) for window in take(queue)[1]]
    assert min(of(request, taken) for request in (*long, short)) >= 12


def test_a_request_that_had_its_windows_first_waits_its_turn_with_the_next_ones() -> None:
    queue, small, half = FairQueue(1), Group(), "v" * (AHEAD_CHARACTERS // 2)
    put(queue, *[FULL] * LARGE)
    put(queue, half, half, group=small)
    assert [take(queue)[1][0].text for _ in range(2)] == [half, half]
    put(queue, half, group=small)
    assert [take(queue)[1][0].text for _ in range(2)] == [FULL, half]


@pytest.mark.parametrize("parts", [(600, 600, 600), (300, 1400, 300), (60, 1700, 150, 60)])
def test_a_small_request_of_several_results_is_done_in_one_batch_of_eight(parts: tuple[int, ...]) -> None:
    queue = FairQueue(8)
    for _ in range(8):
        put(queue, *[FULL] * LARGE)
    small = put(queue, *("w" * length for length in parts))
    assert of(small, take(queue)[1]) == len(parts)


def test_a_window_that_two_requests_wait_for_comes_out_once_when_the_sooner_one_has_its_turn() -> None:
    queue, futures = FairQueue(1), [Future[Embedding]() for _ in range(LARGE)]
    texts = [FULL + str(place) for place in range(LARGE)]
    queue.put(Group(), "fast", zip(texts, futures, strict=True))
    queue.put(Group(), "fast", [(texts[7], futures[7])])
    assert take(queue)[1][0].future is futures[7]
    rest = take_all(queue, LARGE - 1)
    assert len({id(window.future) for _, waiting in rest for window in waiting} | {id(futures[7])}) == LARGE
    assert queue.close() == []


@pytest.mark.parametrize("batch", [2, 8])
def test_a_window_that_two_requests_wait_for_stands_once_in_a_batch(batch: int) -> None:
    queue, shared = FairQueue(batch), [Future[Embedding]() for _ in range(3)]
    for _ in range(3):
        queue.put(Group(), "fast", [(FULL + str(place), future) for place, future in enumerate(shared)])
    assert sum(len(waiting) for _, waiting in take_all(queue, 3)) == 3
    assert all(future.running() for future in shared)


def test_draining_gives_each_window_that_nobody_began_once() -> None:
    queue, shared = FairQueue(1), Future[Embedding]()
    queue.put(Group(), "fast", [(FULL, shared)])
    queue.put(Group(), "fast", [(FULL, shared), (REST, other := Future[Embedding]())])
    begun = take(queue)[1][0].future
    assert begun is shared
    assert [window.future for window in queue.drain()] == [other]


def test_a_batch_is_filled_with_what_needs_the_least_padding() -> None:
    queue = FairQueue(3)
    put(queue, *("w" * length for length in (1000, 500, 990, 980, 510)))
    assert [window.length for window in take(queue)[1]] == [1000, 990, 980]


def test_closing_ends_every_wait_and_returns_what_nobody_will_take() -> None:
    queue, group = FairQueue(8), Group()
    ended: list[object] = []
    waiting = [Thread(target=lambda: ended.append(queue.take())) for _ in range(2)]
    for thread in waiting:
        thread.start()
    queue.close()
    for thread in waiting:
        thread.join(10)
    assert ended == [None, None]
    full = FairQueue(8)
    left = [*put(full, FULL, REST, group=group), *put(full, FULL, group=group, kind="canonical")]
    assert sorted(map(id, left)) == sorted(id(window.future) for window in full.close())
    assert full.take() is None
    with pytest.raises(RuntimeError, match="the encoder is closed"):
        put(full, FULL)
