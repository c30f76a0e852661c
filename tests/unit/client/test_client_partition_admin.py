"""What is done with a topic's partitions through the client: which leader is asked what, and what becomes of refusals."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from clientkit import DROP, FakePartition, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import LATEST, AsyncClient, OffsetOutOfRange
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey


def deleted(message: Any, error: KioError = KioError.none, low: int | None = None) -> Any:
    """As a leader answers for which all is as it was asked; `low` is where partitions begin, by default the offset."""
    schema: Any = importlib.import_module("kio.schema.delete_records.v2.response")
    topics = tuple(
        schema.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(
                schema.DeleteRecordsPartitionResult(
                    partition_index=part.partition_index,
                    low_watermark=-1 if error else (part.offset if low is None else low),
                    error_code=error,
                )
                for part in topic.partitions
            ),
        )
        for topic in message.topics
    )
    return schema.DeleteRecordsResponse(throttle_time=NO_THROTTLE, topics=topics)


def asked(quorum: FakeQuorum, node_id: int) -> list[dict[int, int]]:
    """The offsets by partition of each request that came to a node."""
    return [
        {int(part.partition_index): int(part.offset) for topic in message.topics for part in topic.partitions}
        for key, message in quorum.nodes[node_id].requests
        if key is ApiKey.DELETE_RECORDS
    ]


def test_each_leader_deletes_the_records_of_its_partitions() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 3)
            quorum.move_leader("t", 1, 2)
            for node in quorum.nodes.values():
                node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 4, 1: 5, 2: 6}) == {0: 4, 1: 5, 2: 6}
            assert (asked(quorum, 1), asked(quorum, 2)) == ([{0: 4, 2: 6}], [{1: 5}])

    run(test())


def test_the_answer_is_where_the_partition_begins() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, low=9)
            assert await client.delete_records("t", {0: LATEST}) == {0: 9}
            assert asked(quorum, 1) == [{0: -1}]

    run(test())


@pytest.mark.parametrize("passing", [KioError.not_leader_or_follower, KioError.leader_not_available, None])
def test_what_passes_is_asked_again(passing: KioError | None) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.once(ApiKey.DELETE_RECORDS, lambda _, message: DROP if passing is None else deleted(message, passing))
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 3}) == {0: 3}
            assert asked(quorum, 1) == [{0: 3}] * 2

    run(test())


@pytest.mark.parametrize("answer", [KioError.request_timed_out, None], ids=["timed out", "no answer"])
def test_a_deletion_that_no_answer_decides_is_an_unknown_outcome(answer: KioError | None) -> None:
    """Another answer behind it does not decide it, and says nothing of the partition that is decided."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 2)
            quorum.move_leader("t", 1, 2)
            quorum.nodes[2].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            node = quorum.nodes[1]
            node.once(ApiKey.DELETE_RECORDS, lambda _, message: DROP if answer is None else deleted(message, answer))
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.not_leader_or_follower)
            with pytest.raises(UnknownOutcome, match=r"records of t-0 was not answered in time .*delete again"):
                await client.delete_records("t", {0: 3, 1: 3}, timeout_ms=300)

    run(test())


@pytest.mark.parametrize(
    ("refusal", "expected", "told"),
    [
        # The topic may have got that policy behind the deletion.
        (KioError.policy_violation, UnknownOutcome, r"POLICY_VIOLATION: t-0: .*cleanup.policy=compact; set it to"),
        # What is above the high watermark was above it before.
        (KioError.offset_out_of_range, RequestRejected, r"OFFSET_OUT_OF_RANGE: t-0"),
    ],
)
def test_a_refusal_decides_a_deletion_whose_answer_was_lost_only_where_it_was_refused_then_too(
    refusal: KioError, expected: type[Exception], told: str
) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.once(ApiKey.DELETE_RECORDS, lambda _, message: DROP)
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, refusal)
            with pytest.raises(expected, match=told):
                await client.delete_records("t", {0: 3}, timeout_ms=2_000)

    run(test())


def test_a_deletion_that_was_refused_each_time_is_refused() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.once(ApiKey.DELETE_RECORDS, lambda _, message: deleted(message, KioError.not_leader_or_follower))
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.policy_violation)
            with pytest.raises(RequestRejected, match=r"POLICY_VIOLATION: t-0: .*cleanup.policy=compact; set it to"):
                await client.delete_records("t", {0: 3}, timeout_ms=2_000)

    run(test())


def test_a_deletion_that_could_not_be_sent_is_one_of_the_topic_that_there_is() -> None:
    """The client knew an older topic, whose leader is down."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t", leader_id=2)
            await client.append("t", b"old")
            quorum.add_topic("t", leader_id=1)
            await quorum.nodes[2].stop()
            quorum.nodes[1].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 3}) == {0: 3}

    run(test())


def test_a_deletion_that_comes_once_more_is_not_one_of_the_next_topic() -> None:
    """The request names the topic by its name. Somebody deletes it, creates it again and appends there."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]

            def created_anew(*_: object) -> object:
                quorum.add_topic("t")
                return DROP

            node.once(ApiKey.DELETE_RECORDS, created_anew)
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, low=5)
            with pytest.raises(UnknownOutcome, match=r"records of t-0 was .*deleted and created again"):
                await client.delete_records("t", {0: LATEST})
            assert asked(quorum, 1) == [{0: LATEST}]
            # A further call is one about the new topic.
            assert await client.delete_records("t", {0: LATEST}) == {0: 5}

    run(test())


def test_a_deletion_that_nothing_was_done_of_is_one_of_the_topic_that_there_is() -> None:
    """The client knew an older topic, which was deleted long ago."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t")
            await client.append("t", b"old")
            quorum.add_topic("t", leader_id=2)
            wrong, right = quorum.nodes[1], quorum.nodes[2]
            wrong.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.not_leader_or_follower)
            right.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            assert await client.delete_records("t", {0: 3}) == {0: 3}

    run(test())


def test_a_deletion_that_was_done_in_part_is_not_ended_in_the_next_topic() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t", 2)
            quorum.move_leader("t", 1, 2)
            quorum.nodes[1].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)

            def created_anew(_: object, message: Any) -> object:
                quorum.add_topic("t", 2, leader_id=2)
                return deleted(message, KioError.not_leader_or_follower)

            quorum.nodes[2].once(ApiKey.DELETE_RECORDS, created_anew)
            quorum.nodes[2].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message)
            told = r"created again.*; deleted all the same: records of t-0 \(it begins at 4 now\)"
            with pytest.raises(RequestRejected, match=told) as caught:
                await client.delete_records("t", {0: 4, 1: 5})
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            assert asked(quorum, 2) == [{1: 5}]

    run(test())


@pytest.mark.parametrize("first", [KioError.request_timed_out, None], ids=["timed out", "lost"])
def test_a_refusal_for_one_partition_tells_nothing_of_another_one_that_is_undecided(first: KioError | None) -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 2)
            quorum.move_leader("t", 1, 2)
            compacted, slow = quorum.nodes[1], quorum.nodes[2]
            compacted.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.policy_violation)
            slow.once(ApiKey.DELETE_RECORDS, lambda _, message: DROP if first is None else deleted(message, first))
            told = r"records of t-1 was not answered in time \(POLICY_VIOLATION: t-0: .*cleanup.policy=compact"
            with pytest.raises(UnknownOutcome, match=told):
                await client.delete_records("t", {0: 4, 1: 5})

    run(test())


def test_a_refusal_for_one_partition_tells_of_another_one_that_is_done() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 3)
            quorum.move_leader("t", 0, 2)
            quorum.nodes[1].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, low=7)
            quorum.nodes[2].standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.policy_violation)
            with pytest.raises(RequestRejected) as caught:
                await client.delete_records("t", {0: 4, 1: 5, 2: 6})
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
            done = "; deleted all the same: records of t-1 (it begins at 7 now), t-2 (it begins at 7 now)"
            assert caught.value.message.startswith("t-0: ") and caught.value.message.endswith(done)

    run(test())


def test_partitions_that_are_done_are_told_when_no_node_answers_for_the_others() -> None:
    async def test() -> None:
        settings = {"unreachable_timeout_ms": 100}
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, **settings) as client:
            quorum.add_topic("t", 2)
            node = quorum.nodes[1]

            def leave(_: object, message: Any) -> Any:
                node.standing[ApiKey.METADATA] = lambda *_: DROP
                answer = deleted(message)
                refused = deleted(message, KioError.not_leader_or_follower)
                (topic,) = answer.topics
                parts = (topic.partitions[0], refused.topics[0].partitions[1])
                return type(answer)(throttle_time=NO_THROTTLE, topics=(type(topic)(name=topic.name, partitions=parts),))

            node.once(ApiKey.DELETE_RECORDS, leave)
            with pytest.raises(RequestRejected, match=r"no reachable node .*records of t-0 \(it begins at 3 now\)"):
                await client.delete_records("t", {0: 3, 1: 3})

    run(test())


def test_a_deletion_that_no_leader_was_asked_for_is_refused() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            node = quorum.nodes[1]
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.not_leader_or_follower)
            with pytest.raises(RequestRejected, match="NOT_LEADER"):
                await client.delete_records("t", {0: 3}, timeout_ms=200)

    run(test())


async def refused(client: AsyncClient, told: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        await client.delete_records("t", {0: 3}, timeout_ms=200)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE and str(caught.value) == told


def test_an_offset_above_the_high_watermark_is_refused_with_what_there_is() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            (partition,) = quorum.add_topic("t").partitions
            partition.end_offset = 2
            node = quorum.nodes[1]
            node.standing[ApiKey.DELETE_RECORDS] = lambda _, message: deleted(message, KioError.offset_out_of_range)
            with pytest.raises(OffsetOutOfRange) as caught:
                await client.delete_records("t", {0: 3})
            assert str(caught.value) == "OFFSET_OUT_OF_RANGE: t-0 has no offset 3, it holds 0 up to 2 (exclusive)"
            assert len(asked(quorum, 1)) == 1
            # What the end is by now says nothing against it, or cannot be told.
            partition.end_offset = 9
            await refused(client, "OFFSET_OUT_OF_RANGE: t-0")
            node.standing[ApiKey.LIST_OFFSETS] = lambda _, message: DROP
            await refused(client, "OFFSET_OUT_OF_RANGE: t-0")

    run(test())


# --- more partitions ---


def grown(error: KioError = KioError.none, message: str | None = None) -> Any:
    schema: Any = importlib.import_module("kio.schema.create_partitions.v3.response")
    result = schema.CreatePartitionsTopicResult(name="t", error_code=error, error_message=message)
    return schema.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=(result,))


def grow(quorum: FakeQuorum, message: Any) -> Any:
    """As a node does it."""
    (topic,) = message.topics
    partitions = quorum.topics[topic.name].partitions
    if topic.count <= len(partitions):
        return grown(KioError.invalid_partitions, "would not be an increase.")
    partitions += [FakePartition() for _ in range(topic.count - len(partitions))]
    return grown()


def test_a_topic_has_its_new_partitions_when_the_call_is_over() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.CREATE_PARTITIONS] = lambda _, message: grow(quorum, message)
            described = await client.create_partitions("t", 3)
            assert [each.partition for each in described.partitions] == [0, 1, 2]
            for count in (2, 3):
                with pytest.raises(RequestRejected, match="not be an increase") as caught:
                    await client.create_partitions("t", count)
                assert caught.value.code is ErrorCode.INVALID_PARTITIONS

    run(test())


@pytest.mark.parametrize("is_done", [True, False])
def test_a_growth_whose_answer_was_lost_finds_its_own_work_and_no_others(is_done: bool) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", 1 if is_done else 5)

            def drop(_: object, message: Any) -> object:
                grow(quorum, message)
                return DROP

            quorum.nodes[1].once(ApiKey.CREATE_PARTITIONS, drop)
            quorum.nodes[1].standing[ApiKey.CREATE_PARTITIONS] = lambda _, message: grow(quorum, message)
            if is_done:
                assert len((await client.create_partitions("t", 3)).partitions) == 3
            else:
                with pytest.raises(UnknownOutcome, match="not be an increase"):
                    await client.create_partitions("t", 3)

    run(test())


def test_a_growth_that_no_answer_decides_is_an_unknown_outcome() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=100) as client:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.CREATE_PARTITIONS] = lambda *_: grown(KioError.request_timed_out)
            with pytest.raises(UnknownOutcome, match="3 partitions for topic 't' was sent"):
                await client.create_partitions("t", 3)

    run(test())


def test_more_partitions_than_a_request_can_say_are_refused_here() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            with pytest.raises(RequestRejected, match="no quorum has, so many"):
                await client.create_partitions("t", 2**31)
            assert quorum.nodes[1].requests == []

    run(test())
