"""Topics and the cluster through the client: creating, describing, and answers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode as KioError
from kio.schema.types import TopicName
from kio.static.primitive import i8

from clientkit import DROP, FakeQuorum, run
from clientkit_answers import NO_THROTTLE, create_topics
from clientkit_answers import metadata as answer_metadata
from raftlake.client import AsyncClient
from raftlake.client.protocol import metadata_request
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey

METADATA_OF_T = metadata_request(["t"])


def test_create_topic_waits_for_it_and_refuses_a_second_one() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            described = await client.create_topic("t", 3)
            assert [partition.partition for partition in described.partitions] == [0, 1, 2]
            with pytest.raises(RequestRejected) as caught:
                await client.create_topic("t", 3)
            assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert (await client.create_topic("t", 3, exist_ok=True)).name == "t"
            assert [topic.name for topic in await client.topics()] == ["t"]

    run(test())


def test_a_create_whose_answer_was_lost_finds_its_own_work_done() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:

            def create_and_drop(header: object, message: object) -> object:
                create_topics(quorum, quorum.nodes[1], message)
                return DROP

            quorum.nodes[1].once(ApiKey.CREATE_TOPICS, create_and_drop)
            assert (await client.create_topic("t")).name == "t"

    run(test())


def test_the_node_is_asked_to_answer_before_the_client_gives_up() -> None:
    """It waits for leaders meanwhile. One that has none yet says so, and the client goes on by itself."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, attempt_timeout_ms=3_000) as client:
            asked_ms: list[float] = []

            def without_leaders(_: object, message: Any) -> CreateTopicsResponse:
                asked_ms.append(message.timeout.total_seconds() * 1000)
                create_topics(quorum, quorum.nodes[1], message)
                result = CreatableTopicResult(
                    name=TopicName("t"), topic_id=None, error_code=KioError.request_timed_out, error_message="", configs=None
                )
                return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(result,))

            for node in quorum.nodes.values():
                node.once(ApiKey.CREATE_TOPICS, without_leaders)
            assert (await client.create_topic("t", 2)).name == "t"
            assert asked_ms[0] == 1_500

    run(test())


def _configs(code: KioError, **configs: str) -> DescribeConfigsResponse:
    told = tuple(
        DescribeConfigsResourceResult(
            name=name, value=value, read_only=True, is_sensitive=False, synonyms=(), documentation=None
        )
        for name, value in configs.items()
    )
    result = DescribeConfigsResult(error_code=code, error_message=None, resource_type=i8(2), resource_name="t", configs=told)
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=(result,))


def test_settings_of_a_topic_are_asked_again_while_a_node_may_have_missed_it() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            asked: list[tuple[int, str]] = []

            def answer(code: KioError) -> Callable[[object, Any], DescribeConfigsResponse]:
                def told(_: object, message: Any) -> DescribeConfigsResponse:
                    asked.extend((int(each.resource_type), each.resource_name) for each in message.resources)
                    return _configs(code, color="red")

                return told

            for node in quorum.nodes.values():
                node.once(ApiKey.DESCRIBE_CONFIGS, answer(KioError.leader_not_available))
                node.once(ApiKey.DESCRIBE_CONFIGS, answer(KioError.none))
            assert await client.topic_configs("t") == {"color": "red"}
            assert len(asked) > 1 and set(asked) == {(2, "t")}
            for node in quorum.nodes.values():
                for _ in range(2):
                    node.once(ApiKey.DESCRIBE_CONFIGS, answer(KioError.unknown_topic_or_partition))
            with pytest.raises(RequestRejected, match="topic t"):
                await client.topic_configs("t")

    run(test())


def test_a_create_without_any_answer_is_an_unknown_outcome() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unreachable_timeout_ms=100) as client:
            for _ in range(50):
                quorum.nodes[1].once(ApiKey.CREATE_TOPICS, lambda *_: DROP)
            with pytest.raises(UnknownOutcome, match=r"CREATE_TOPICS was sent, .*not known.*may have been carried out.*decide"):
                await client.create_topic("t")

    run(test())


@pytest.mark.parametrize("message", [None, "the change was proposed and its outcome is unknown; look before trying again"])
def test_a_change_that_a_node_does_not_know_the_outcome_of_is_an_unknown_outcome(message: str | None) -> None:
    def created(*_: object) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            throttle_time=NO_THROTTLE,
            topics=(
                CreatableTopicResult(
                    name=TopicName("t"),
                    topic_id=None,
                    error_code=KioError.request_timed_out,
                    error_message=message,
                    configs=None,
                ),
            ),
        )

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=100) as client:
            quorum.nodes[1].standing[ApiKey.CREATE_TOPICS] = created
            with pytest.raises(UnknownOutcome) as caught:
                await client.create_topic("t")
            assert str(caught.value) == (
                "create topic 't' was sent, and no answer decides; its outcome is not known: "
                "it may have been carried out, or may still be; look whether it was, then decide"
            )

    run(test())


def test_a_topic_without_leaders_says_that_it_was_created() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=200) as client:
            quorum.add_topic("t", leader_id=-1)
            with pytest.raises(UnknownOutcome, match=r"topic 't' was created, .* is not known: describe the topic before"):
                await client.create_topic("t", exist_ok=True)

    run(test())


def test_the_cluster_is_described_by_any_node() -> None:
    async def test() -> None:
        async with FakeQuorum(3) as quorum, AsyncClient(quorum.bootstrap) as client:
            described = await client.describe_cluster()
            assert (described.cluster_id, described.controller_id) == ("fake", 1)
            assert {node_id: node.port for node_id, node in described.nodes.items()} == {
                node_id: node.port for node_id, node in quorum.nodes.items()
            }

    run(test())


def test_a_topic_is_described_anew_each_time() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=2)
            assert [partition.leader_id for partition in (await client.describe_topic("t")).partitions] == [1, 1]
            quorum.move_leader("t", 1, 2)
            described = await client.describe_topic("t")
            assert described.topic_id == topic.topic_id
            assert [(p.leader_id, p.leader_epoch, p.replicas) for p in described.partitions] == [(1, 1, (1, 2)), (2, 2, (1, 2))]

    run(test())


@pytest.mark.parametrize("partitions", [2**31, 99_999_999_999, -(2**31)])
def test_more_partitions_than_a_request_can_ask_for(partitions: int) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            with pytest.raises(RequestRejected, match=f"create topic 't' with {partitions} partitions") as caught:
                await client.create_topic("t", partitions)
            assert caught.value.code == ErrorCode.INVALID_PARTITIONS
            assert (await client.create_topic("t", 2)).name == "t"

    run(test())


# --- deleting ---


class Deleting(FakeQuorum):
    """Nodes that delete by the id where one is given, else by the name. `spoilt` names stand for no topic."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(nodes)
        self.spoilt: set[str] = set()
        for node in self.nodes.values():
            node.standing[ApiKey.DELETE_TOPICS] = lambda _, message: self.delete(message)

    @property
    def named(self) -> list[tuple[str | None, bytes | None]]:
        """The name and the id of each deletion that came to a node."""
        return [
            (asked.name, None if asked.topic_id is None else asked.topic_id.bytes)
            for node in self.nodes.values()
            for key, message in node.requests
            if key is ApiKey.DELETE_TOPICS
            for asked in message.topics
        ]

    def delete(self, message: Any) -> DeleteTopicsResponse:
        (asked,) = message.topics
        if asked.topic_id is None:
            name = asked.name
            is_there = name in self.topics or name in self.spoilt
        else:
            found = [name for name, topic in self.topics.items() if topic.topic_id == asked.topic_id.bytes]
            name, is_there = (found or ["?"])[0], bool(found)
        self.topics.pop(name, None)
        self.spoilt.discard(name)
        gone = KioError.unknown_topic_or_partition if asked.topic_id is None else KioError.unknown_topic_id
        return deletion(KioError.none if is_there else gone)


def deletion(code: KioError) -> DeleteTopicsResponse:
    result = DeletableTopicResult(name=None, topic_id=None, error_code=code, error_message=None)
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=(result,))


def test_a_topic_is_deleted_by_its_id() -> None:
    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic_id = quorum.add_topic("t").topic_id
            await client.append("t", b"old")
            # What the client knows of it is old.
            newer = quorum.add_topic("t").topic_id
            await client.delete_topic("t")
            assert quorum.topics == {} and quorum.named == [(None, newer)] and newer != topic_id

    run(test())


@pytest.mark.parametrize("first", [KioError.request_timed_out, None], ids=["timed out", "lost"])
@pytest.mark.parametrize("is_created_again", [True, False])
def test_a_deletion_that_comes_once_more_leaves_the_next_topic_alone(first: KioError | None, is_created_again: bool) -> None:
    async def test() -> None:
        async with Deleting(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")

            def done(_: object, message: Any) -> object:
                quorum.delete(message)
                if is_created_again:
                    quorum.add_topic("t")
                return DROP if first is None else deletion(first)

            scripts = [done]
            for node in quorum.nodes.values():
                node.standing[ApiKey.DELETE_TOPICS] = lambda header, message: (
                    scripts.pop()(header, message) if scripts else quorum.delete(message)
                )
            await client.delete_topic("t")
            assert ("t" in quorum.topics) is is_created_again
            assert len(quorum.named) == 2 and len(set(quorum.named)) == 1

    run(test())


@pytest.mark.parametrize("looks", [1, 2])
def test_a_topic_that_one_node_knows_by_an_older_id_is_deleted(looks: int) -> None:
    """It was deleted and created again, and the node that lags told of the old one."""

    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap) as client:
            old = quorum.add_topic("t")
            lagging = answer_metadata(quorum, quorum.nodes[1], METADATA_OF_T)
            new = quorum.add_topic("t")
            for _ in range(looks):
                quorum.nodes[1].once(ApiKey.METADATA, lambda *_: lagging)
            await client.delete_topic("t")
            assert quorum.topics == {}
            assert quorum.named == [(None, old.topic_id)] * looks + [(None, new.topic_id)]

    run(test())


def test_an_id_that_no_node_knows_is_asked_for_until_the_time_is_over() -> None:
    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=300) as client:
            quorum.add_topic("t")
            quorum.nodes[1].standing[ApiKey.DELETE_TOPICS] = lambda *_: deletion(KioError.unknown_topic_id)
            with pytest.raises(RequestRejected, match="UNKNOWN_TOPIC_ID: delete topic 't'"):
                await client.delete_topic("t")
            assert "t" in quorum.topics and len(quorum.named) > 1

    run(test())


def test_a_key_that_describes_no_topic_is_deleted_by_its_name() -> None:
    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.spoilt.add("t")
            await client.delete_topic("t")
            assert quorum.spoilt == set() and quorum.named == [("t", None)]

    run(test())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_that_is_gone_before_is_not_deleted(is_known: bool) -> None:
    """Where metadata knows it, somebody deletes it while the node asks the leader."""

    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            if is_known:
                quorum.add_topic("t")
                quorum.nodes[1].once(ApiKey.DELETE_TOPICS, lambda *_: deletion(KioError.unknown_topic_or_partition))
            with pytest.raises(RequestRejected, match="topic 't' does not exist") as caught:
                await client.delete_topic("t")
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and len(quorum.named) == 1

    run(test())


def test_a_topic_without_an_id_is_deleted_by_its_name() -> None:
    """Servers from before topics had ids tell zeros."""

    async def test() -> None:
        async with Deleting() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t").topic_id = bytes(16)
            await client.delete_topic("t")
            assert quorum.topics == {} and quorum.named == [("t", None)]

    run(test())
