"""Appends under any sequence of faults: what a client was told is what is in the log.

Hypothesis draws what happens to each Produce request that arrives: answered, lost before or after the append, refused in a
way that passes, refused for good, or met by a leader that has just moved. The claims are those of `sender`: a success stands
once, at the offset that was returned; a rejection stands nowhere; an unknown outcome at most once; and the batches of a
strict producer stand in the order of their submission. Callers may also give up, while their batch is queued or under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clientkit import DROP, FakeQuorum, produced, run
from raftlake.client import AppendResult, AsyncClient
from raftlake.client.producer import AsyncProducer
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch

PASSING = ("ok", "drop", "append_drop", "not_leader", "append_not_leader", "append_timed_out", "move", "throttled")
FAULTS = st.lists(st.sampled_from(PASSING), max_size=25)
#: When a Produce request of this number arrives, the caller of that batch gives up.
GIVEN_UP = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 23)), min_size=1, max_size=6)
FAULTS_AND_REFUSALS = st.lists(st.sampled_from([*PASSING, "refused"]), max_size=25)
COUNT = 24


def install(quorum: FakeQuorum, faults: list[str], on_request: Callable[[], None] = lambda: None) -> None:
    """Each Produce request, at whichever node, meets the next fault; after the last one nothing goes wrong any more."""
    left = iter(faults)

    def script_for(node_id: int) -> Callable[[object, Any], Any]:
        def script(header: object, message: Any) -> Any:
            quorum.nodes[node_id].once(ApiKey.PRODUCE, script)
            on_request()
            node = quorum.nodes[node_id]
            match next(left, "ok"):
                case "ok":
                    return None
                case "drop":
                    return DROP
                case "append_drop":
                    quorum._produce(node, message)
                    return DROP
                case "not_leader":
                    return produced("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                case "append_not_leader":
                    quorum._produce(node, message)
                    return produced("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                case "append_timed_out":
                    quorum._produce(node, message)
                    return produced("t", 0, ErrorCode.REQUEST_TIMED_OUT)
                case "throttled":
                    return produced("t", 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
                case "refused":
                    return produced("t", 0, ErrorCode.INVALID_RECORD)
                case "move":
                    quorum.move_leader("t", 0, 3 - quorum.topics["t"].partitions[0].leader_id)
                    return None
                case other:
                    raise AssertionError(other)

        return script

    for node_id, node in quorum.nodes.items():
        node.once(ApiKey.PRODUCE, script_for(node_id))


Outcome = AppendResult | BaseException
Append = Callable[[AsyncClient], Awaitable[Sequence[Outcome]]]


def outcomes_and_log(faults: list[str], append: Append) -> tuple[Sequence[Outcome], list[bytes | None]]:
    found: list[tuple[Sequence[Outcome], list[bytes | None]]] = []

    async def test() -> None:
        async with (
            FakeQuorum(2) as quorum,
            AsyncClient(quorum.bootstrap, retry_backoff_ms=1, retry_backoff_ms_max=4) as client,
        ):
            partition = quorum.add_topic("t").partitions[0]
            install(quorum, faults)
            found.append((await append(client), partition.values()))

    run(test())
    return found[0]


def values() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


async def append_strictly(client: AsyncClient) -> Sequence[Outcome]:
    batches = [build_batch([Record(value=value)], timestamp_ms=1) for value in values()]
    return await asyncio.gather(*client.producer().submit_batches("t", 0, batches), return_exceptions=True)


async def append_at_once(client: AsyncClient) -> Sequence[Outcome]:
    return await asyncio.gather(*(client.append("t", value) for value in values()), return_exceptions=True)


def require_truth(outcomes: Sequence[Outcome], log: list[bytes | None]) -> None:
    assert len(log) == len(set(log)), "doubled"
    for value, outcome in zip(values(), outcomes, strict=True):
        if isinstance(outcome, AppendResult):
            assert log.count(value) == 1
            assert outcome.offset in (-1, log.index(value))
        elif isinstance(outcome, RequestRejected):
            assert value not in log
        else:
            assert isinstance(outcome, UnknownOutcome | asyncio.CancelledError)


@given(FAULTS)
@settings(max_examples=60)
def test_a_strict_producer_gets_everything_in_once_and_in_order(faults: list[str]) -> None:
    outcomes, log = outcomes_and_log(faults, append_strictly)
    assert log == values()
    assert [outcome.offset for outcome in outcomes if isinstance(outcome, AppendResult)] == list(range(COUNT))


@given(FAULTS_AND_REFUSALS)
@settings(max_examples=60)
def test_a_strict_producer_never_appends_behind_a_gap(faults: list[str]) -> None:
    outcomes, log = outcomes_and_log(faults, append_strictly)
    require_truth(outcomes, log)
    assert log == values()[: len(log)]


@given(FAULTS)
@settings(max_examples=60)
def test_appends_side_by_side_all_get_in_once(faults: list[str]) -> None:
    outcomes, log = outcomes_and_log(faults, append_at_once)
    require_truth(outcomes, log)
    assert not any(isinstance(outcome, BaseException) for outcome in outcomes)


@given(FAULTS_AND_REFUSALS)
@settings(max_examples=60)
def test_a_refusal_among_appends_side_by_side_is_told_truly(faults: list[str]) -> None:
    require_truth(*outcomes_and_log(faults, append_at_once))


def outcomes_and_log_where_callers_give_up(
    faults: list[str], given_up: list[tuple[int, int]], lanes: int
) -> tuple[Sequence[Outcome], list[bytes | None]]:
    found: list[tuple[Sequence[Outcome], list[bytes | None]]] = []

    async def test() -> None:
        async with (
            FakeQuorum(2) as quorum,
            AsyncClient(quorum.bootstrap, retry_backoff_ms=1, retry_backoff_ms_max=4) as client,
        ):
            partition = quorum.add_topic("t").partitions[0]
            outcomes: list[asyncio.Future[AppendResult]] = []
            arrived = count()

            def give_up() -> None:
                now = next(arrived)
                for moment, number in given_up:
                    if moment == now:
                        outcomes[number].cancel()

            install(quorum, faults, give_up)
            producer = AsyncProducer(client._cluster, lanes_max=lanes)
            batches = [build_batch([Record(value=value)], timestamp_ms=1) for value in values()]
            outcomes += producer.submit_batches("t", 0, batches)
            found.append((await asyncio.gather(*outcomes, return_exceptions=True), partition.values()))
            await producer.close()

    run(test())
    return found[0]


@given(FAULTS, GIVEN_UP)
@settings(max_examples=60)
def test_what_a_caller_gives_up_leaves_the_rest_of_a_strict_producer_in_order(
    faults: list[str], given_up: list[tuple[int, int]]
) -> None:
    outcomes, log = outcomes_and_log_where_callers_give_up(faults, given_up, lanes=1)
    require_truth(outcomes, log)
    assert log == values()[: len(log)]
    rejected = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, RequestRejected)]
    # What has a place is sent though its caller gave up; what has none ends all behind it, and nothing before it.
    assert rejected == [number for number in range(len(log), COUNT) if not isinstance(outcomes[number], asyncio.CancelledError)]
    assert len(log) == COUNT or isinstance(outcomes[len(log)], asyncio.CancelledError)


@given(FAULTS, GIVEN_UP, st.integers(2, 3))
@settings(max_examples=60)
def test_what_a_caller_gives_up_costs_no_other_append(faults: list[str], given_up: list[tuple[int, int]], lanes: int) -> None:
    outcomes, log = outcomes_and_log_where_callers_give_up(faults, given_up, lanes)
    require_truth(outcomes, log)
    assert all(isinstance(outcome, AppendResult | asyncio.CancelledError) for outcome in outcomes)
