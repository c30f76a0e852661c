"""Changes that any node takes: what becomes of one whose first try is undecided, when a later try is refused."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i8

from clientkit import DROP, FakePartition, FakeQuorum, run
from clientkit_answers import NO_THROTTLE, metadata
from raftlake.client import AsyncClient, NoReachableNode
from raftlake.client.protocol import metadata_request
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey


def created(code: KioError) -> Any:
    result = CreatableTopicResult(name="t", topic_id=None, error_code=code, error_message="why", configs=None)  # type: ignore[arg-type]
    return CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(result,))


def deleted(code: KioError) -> Any:
    result = DeletableTopicResult(name="t", topic_id=None, error_code=code, error_message="why")  # type: ignore[arg-type]
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=(result,))


def grown(code: KioError) -> Any:
    schema: Any = importlib.import_module("kio.schema.create_partitions.v3.response")
    result = schema.CreatePartitionsTopicResult(name="t", error_code=code, error_message="why")
    return schema.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=(result,))


def altered(code: KioError) -> Any:
    schema: Any = importlib.import_module("kio.schema.incremental_alter_configs.v1.response")
    result = schema.AlterConfigsResourceResponse(error_code=code, error_message="why", resource_type=i8(2), resource_name="t")
    return schema.IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=(result,))


@dataclass(frozen=True)
class Operation:
    key: ApiKey
    answer: Callable[[KioError], Any]
    call: Callable[[AsyncClient], Awaitable[Any]]


OPERATIONS = [
    Operation(ApiKey.CREATE_TOPICS, created, lambda client: client.create_topic("t")),
    Operation(ApiKey.DELETE_TOPICS, deleted, lambda client: client.delete_topic("t")),
    Operation(ApiKey.CREATE_PARTITIONS, grown, lambda client: client.create_partitions("t", 3)),
    Operation(ApiKey.INCREMENTAL_ALTER_CONFIGS, altered, lambda client: client.alter_topic_configs("t", {"a": "b"})),
]
of_each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.key.name)


async def asking(operation: Operation, first: Any, then: Any, timeout_ms: int = 200) -> None:
    """The first try is answered `first`, each further one `then`; None: the node is gone."""
    async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=timeout_ms) as client:
        quorum.add_topic("t")
        # A node has answered: the client waits for it as long as the operation may take.
        await client.describe_cluster()
        node = quorum.nodes[1]
        leaving: list[asyncio.Task[None]] = []

        def answer_first(*_: object) -> Any:
            if then is None:
                # Behind the answer: the next try finds nobody, and is not sent.
                leaving.append(asyncio.get_running_loop().create_task(node.stop()))
            return first

        node.once(operation.key, answer_first)
        node.standing[operation.key] = lambda *_: then
        await operation.call(client)


@of_each
@pytest.mark.parametrize("first", [KioError.request_timed_out, None], ids=["timed out", "lost"])
@pytest.mark.parametrize(
    "then",
    [KioError.not_controller, KioError.policy_violation, KioError.request_timed_out, None],
    ids=["no leader", "refused", "timed out again", "gone"],
)
def test_a_change_that_may_be_done_is_never_refused(
    operation: Operation, first: KioError | None, then: KioError | None
) -> None:
    answers = [DROP if first is None else operation.answer(first), None if then is None else operation.answer(then)]
    with pytest.raises(UnknownOutcome, match=r"was sent, and no answer .*may have been carried out.*look whether"):
        run(asking(operation, *answers))


@of_each
def test_what_refused_the_last_try_is_told(operation: Operation) -> None:
    with pytest.raises(UnknownOutcome, match=r"decides \(the last try ended with: NOT_CONTROLLER: .*t'?: why\)"):
        run(asking(operation, operation.answer(KioError.request_timed_out), operation.answer(KioError.not_controller), 600))


@of_each
@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.POLICY_VIOLATION])
def test_a_change_that_was_refused_each_time_was_not_made(operation: Operation, code: ErrorCode) -> None:
    refused = operation.answer(KioError(int(code)))
    with pytest.raises(RequestRejected, match=r"'t'.*: why") as caught:
        run(asking(operation, refused, refused))
    assert caught.value.code is code


@of_each
def test_a_change_that_no_node_took_was_not_made(operation: Operation) -> None:
    with pytest.raises(NoReachableNode):
        run(unreached(operation))


async def unreached(operation: Operation) -> None:
    async with FakeQuorum() as quorum:
        bootstrap = quorum.bootstrap
        await quorum.nodes[1].stop()
        async with AsyncClient(bootstrap, request_timeout_ms=100) as client:
            await operation.call(client)


def test_a_topic_whose_nodes_go_before_it_has_leaders_was_created() -> None:
    async def test() -> None:
        settings = {"request_timeout_ms": 2_000, "unreachable_timeout_ms": 100}
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, **settings) as client:
            node = quorum.nodes[1]

            def leave(*_: object) -> Any:
                node.standing[ApiKey.METADATA] = lambda *_: DROP
                return created(KioError.none)

            node.once(ApiKey.CREATE_TOPICS, leave)
            with pytest.raises(
                UnknownOutcome, match=r"topic 't' was created, but no node answers any more .*describe the topic"
            ):
                await client.create_topic("t")

    run(test())


@pytest.mark.parametrize("operation", [OPERATIONS[0], OPERATIONS[2]], ids=lambda operation: operation.key.name)
@pytest.mark.parametrize("told", [KioError.unknown_topic_or_partition, KioError.invalid_topic_exception])
def test_a_topic_that_other_nodes_do_not_know_yet_was_created(operation: Operation, told: KioError) -> None:
    """The creation, or the growth, was acknowledged shortly before the time was over."""

    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=400) as client:
            quorum.add_topic("t")

            def done(*_: object) -> Any:
                quorum.topics.clear()
                return operation.answer(KioError.none)

            def lagging(_: object, message: Any) -> Any:
                answer = metadata(quorum, quorum.nodes[1], message)
                return answer if quorum.topics else replace(answer, topics=[replace(answer.topics[0], error_code=told)])

            for node in quorum.nodes.values():
                node.standing[operation.key] = done
                node.standing[ApiKey.METADATA] = lagging
            with pytest.raises(UnknownOutcome, match=r"topic 't' was created, but .*describe the topic before you use it"):
                await operation.call(client)

    run(test())


# --- a topic that is created again under the name ---

BY_NAME = OPERATIONS[2:]
of_each_by_name = pytest.mark.parametrize("operation", BY_NAME, ids=lambda operation: operation.key.name)


class Named(FakeQuorum):
    """Nodes that change the topic which has the name, and note which one that was."""

    def __init__(self, operation: Operation, nodes: int = 1) -> None:
        super().__init__(nodes)
        self.operation = operation
        self.changed: list[bytes] = []
        for node in self.nodes.values():
            node.standing[operation.key] = lambda *_: self.done()

    def done(self, code: KioError = KioError.none) -> Any:
        self.changed.append(self.topics["t"].topic_id)
        self.topics["t"].partitions += [FakePartition() for _ in range(3 - len(self.topics["t"].partitions))]
        return self.operation.answer(code)

    def count(self, key: ApiKey) -> int:
        return sum(node.count(key) for node in self.nodes.values())


@of_each_by_name
@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("first", [KioError.request_timed_out, None], ids=["timed out", "lost"])
def test_a_change_that_comes_once_more_leaves_the_next_topic_alone(
    operation: Operation, is_cached: bool, first: KioError | None
) -> None:
    async def test() -> None:
        async with Named(operation, 2) as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            old = quorum.add_topic("t").topic_id
            if is_cached:
                await client.describe_topic("t")

            def done(*_: object) -> Any:
                quorum.done()
                quorum.add_topic("t")
                for node in quorum.nodes.values():
                    node.standing[operation.key] = lambda *_: quorum.done()
                return DROP if first is None else operation.answer(first)

            for node in quorum.nodes.values():
                node.standing[operation.key] = done
            with pytest.raises(UnknownOutcome, match=r"'t'.* was sent, .*deleted and created again"):
                await operation.call(client)
            assert quorum.changed == [old]
            # A further call is one about the new topic.
            await operation.call(client)
            assert quorum.changed == [old, quorum.topics["t"].topic_id]

    run(test())


@of_each_by_name
@pytest.mark.parametrize("losses", [1, 2])
def test_a_change_that_comes_once_more_is_made_where_the_topic_is_the_same(operation: Operation, losses: int) -> None:
    async def test() -> None:
        async with Named(operation) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            for _ in range(losses):
                quorum.nodes[1].once(operation.key, lambda *_: DROP)
            await operation.call(client)
            assert quorum.changed == [quorum.topics["t"].topic_id]

    run(test())


@of_each_by_name
def test_a_first_try_goes_to_the_topic_that_there_is(operation: Operation) -> None:
    """The client knew an older one. So it is also for a second try, where the first one certainly changed nothing."""

    async def test() -> None:
        async with Named(operation) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            await client.describe_topic("t")
            quorum.add_topic("t")
            quorum.nodes[1].once(operation.key, lambda *_: operation.answer(KioError.not_controller))
            await operation.call(client)
            assert quorum.changed == [quorum.topics["t"].topic_id]

    run(test())


@of_each_by_name
def test_a_topic_that_is_known_is_not_asked_for_before_a_change(operation: Operation) -> None:
    async def test() -> None:
        async with Named(operation) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            asked: list[int] = []
            quorum.nodes[1].standing[operation.key] = lambda *_: (asked.append(quorum.count(ApiKey.METADATA)), quorum.done())[1]
            await operation.call(client)
            await operation.call(client)
            assert asked[0] == 1 and asked[1] == asked[0] + (operation.key is ApiKey.CREATE_PARTITIONS)

    run(test())


@of_each_by_name
@pytest.mark.parametrize("told", [KioError.unknown_topic_or_partition, KioError.invalid_topic_exception])
def test_a_change_of_a_topic_that_metadata_does_not_know_is_asked_for_all_the_same(
    operation: Operation, told: KioError
) -> None:
    """The node asks the leader, and may know more."""

    async def test() -> None:
        async with Named(operation) as quorum, AsyncClient(quorum.bootstrap) as client:
            answer = metadata(quorum, quorum.nodes[1], metadata_request(["t"]))
            answer = replace(answer, topics=[replace(answer.topics[0], error_code=told)])
            quorum.nodes[1].once(ApiKey.METADATA, lambda *_: answer)
            quorum.add_topic("t")
            await operation.call(client)
            assert len(quorum.changed) == 1

    run(test())
