"""Changes that any node takes: what becomes of one whose first try is undecided, when a later try is refused."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i8

from clientkit import DROP, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import AsyncClient, NoReachableNode
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
