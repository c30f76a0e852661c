"""Configs of topics through the client: what is asked, what is told, and what a lost or a hesitant answer comes to."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i8

from clientkit import DROP, FakeQuorum, run
from clientkit_answers import NO_THROTTLE
from raftlake.client import AsyncClient
from raftlake.client.config_admin import TOPICS_AT_ONCE, alter_configs_request, alter_configs_result, own_configs_of
from raftlake.errors import ConfigError, ErrorCode, RequestRejected, UnknownOutcome, WireError
from raftlake.wire.api import ApiKey, encode_request

TOLD: Any = importlib.import_module("kio.schema.describe_configs.v4.response")
ALTERED: Any = importlib.import_module("kio.schema.incremental_alter_configs.v1.response")


def altered(error: KioError = KioError.none, message: str | None = None, count: int = 1) -> Any:
    result = ALTERED.AlterConfigsResourceResponse(
        error_code=error, error_message=message, resource_type=i8(2), resource_name="t"
    )
    return ALTERED.IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=(result,) * count)


def described(message: Any, error: KioError = KioError.none, missing: tuple[str, ...] = ()) -> Any:
    """Each topic says something of its own, beside what follows the node."""

    def config(name: str, value: str | None, source: int) -> Any:
        return TOLD.DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=False,
            config_source=i8(source),
            is_sensitive=False,
            synonyms=(),
            documentation=None,
        )

    def result(name: str) -> Any:
        code = KioError.unknown_topic_or_partition if name in missing else error
        configs = (config("retention.ms", name, 1), config("segment.ms", "9", 5), config("secret", None, 1))
        return TOLD.DescribeConfigsResult(
            error_code=code, error_message="told why", resource_type=i8(2), resource_name=name, configs=configs
        )

    results = tuple(result(resource.resource_name) for resource in message.resources)
    return TOLD.DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=results)


def test_a_change_is_one_request_with_all_of_it() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            asked: list[Any] = []

            def answer(_: object, message: Any) -> Any:
                asked.append(message)
                return altered()

            quorum.nodes[1].standing[ApiKey.INCREMENTAL_ALTER_CONFIGS] = answer
            await client.alter_topic_configs("t", {"retention.ms": "5"}, delete=["segment.ms"])
            (request,) = asked
            (resource,) = request.resources
            assert (int(resource.resource_type), resource.resource_name, request.validate_only) == (2, "t", False)
            changes = [(each.name, int(each.config_operation), each.value) for each in resource.configs]
            assert changes == [("retention.ms", 0, "5"), ("segment.ms", 1, None)]
            await client.alter_topic_configs("t")
            assert asked[1].resources[0].configs == ()

    run(test())


@pytest.mark.parametrize("error", [KioError.invalid_config, KioError.unknown_topic_or_partition])
def test_a_refusal_is_told_at_once_with_its_reason(error: KioError) -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.nodes[1].standing[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda *_: altered(error, "color is not known")
            with pytest.raises(RequestRejected, match="configs of topic 't': color is not known") as caught:
                await client.alter_topic_configs("t", {"color": "red"})
            assert int(caught.value.code) == int(error)
            assert sum(key is ApiKey.INCREMENTAL_ALTER_CONFIGS for key, _ in quorum.nodes[1].requests) == 1

    run(test())


def test_a_change_whose_answer_was_lost_is_sent_again() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            node = quorum.nodes[1]
            node.once(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda *_: DROP)
            node.once(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda *_: altered(KioError.not_controller))
            node.standing[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda *_: altered()
            await client.alter_topic_configs("t", {"retention.ms": "5"})

    run(test())


def test_a_change_that_no_answer_decides_is_an_unknown_outcome() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, request_timeout_ms=100) as client:
            hesitant = altered(KioError.request_timed_out)
            quorum.nodes[1].standing[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda *_: hesitant
            with pytest.raises(UnknownOutcome, match="configs of topic 't' was sent"):
                await client.alter_topic_configs("t", {"retention.ms": "5"})

    run(test())


def test_own_configs_are_those_that_the_topics_say_themselves() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            node = quorum.nodes[1]
            node.once(ApiKey.DESCRIBE_CONFIGS, lambda _, message: described(message, KioError.leader_not_available))
            node.standing[ApiKey.DESCRIBE_CONFIGS] = lambda _, message: described(message, missing=("gone",))
            assert await client.own_topic_configs(["t", "gone", "u", "t"]) == {
                "t": {"retention.ms": "t"},
                "u": {"retention.ms": "u"},
            }
            assert await client.own_topic_configs([]) == {}

    run(test())


def test_many_topics_are_asked_for_some_at_a_time() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            sizes: list[int] = []

            def answer(_: object, message: Any) -> Any:
                sizes.append(len(message.resources))
                return described(message)

            quorum.nodes[1].standing[ApiKey.DESCRIBE_CONFIGS] = answer
            names = [f"t{number}" for number in range(2 * TOPICS_AT_ONCE + 1)]
            assert list(await client.own_topic_configs(names)) == names
            assert sizes == [TOPICS_AT_ONCE, TOPICS_AT_ONCE, 1]

    run(test())


def test_another_error_of_one_topic_is_told() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            standing = quorum.nodes[1].standing
            standing[ApiKey.DESCRIBE_CONFIGS] = lambda _, message: described(message, KioError.invalid_topic_exception)
            with pytest.raises(RequestRejected, match="configs of topic t: told why") as caught:
                await client.own_topic_configs(["t"])
            assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test())


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_for_another_number_of_topics_is_none(count: int) -> None:
    with pytest.raises(WireError, match=f"for {count} topics instead of one"):
        alter_configs_result(altered(count=count))


def test_the_request_can_be_sent() -> None:
    request = alter_configs_request("t", {"retention.ms": "5"}, ["segment.ms"])
    assert encode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, "c", request)
    assert own_configs_of(TOLD.DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=())) == {}


@pytest.mark.parametrize(
    ("configs", "delete"),
    [({"segment.ms": 5000}, ()), ({"retention.ms": "5", "segment.ms": "\ud800"}, ()), ({"\ud800": "5"}, ()), ({}, ["a", 7])],
)
def test_what_is_no_text_is_named_before_anything_is_sent(configs: Any, delete: Any) -> None:
    with pytest.raises(ConfigError, match="is no text that can be sent"):
        alter_configs_request("t", configs, delete)
