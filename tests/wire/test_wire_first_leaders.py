"""CreateTopics on real nodes: the answer comes when the same node names a leader of each partition in Metadata."""

from __future__ import annotations

import asyncio
import datetime
import importlib
from typing import Any

import pytest

from raftlake import LocalQuorum
from raftlake.client import AsyncClient
from raftlake.client.deadline import Deadline
from raftlake.errors import ErrorCode
from raftlake.wire.api import ApiKey

pytestmark = pytest.mark.process

TOPICS, PARTITIONS = 12, 6


def creation(name: str) -> Any:
    schema = importlib.import_module("kio.schema.create_topics.v7.request")
    topic = schema.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=-1, assignments=(), configs=())
    return schema.CreateTopicsRequest(topics=(topic,), timeout=datetime.timedelta(seconds=60))


def question(name: str) -> Any:
    schema = importlib.import_module("kio.schema.metadata.v12.request")
    asked = (schema.MetadataRequestTopic(name=name, topic_id=None),)
    return schema.MetadataRequest(topics=asked, include_topic_authorized_operations=False)


def test_metadata_right_after_the_answer_names_the_leaders(quorum: LocalQuorum) -> None:
    """rskafka asks once, and hangs for ever where there is no leader."""

    async def ask() -> list[list[int]]:
        told: list[list[int]] = []
        async with AsyncClient(quorum.bootstrap_servers, attempt_timeout_ms=60_000, request_timeout_ms=90_000) as client:
            await client.describe_cluster()
            cluster = client._cluster
            for number in range(TOPICS):
                name, deadline = f"led-at-once-{number}", Deadline(90_000)
                address = list(cluster.nodes.values())[number % len(cluster.nodes)]
                connection = await cluster.pool.get(address)
                made = await cluster.request(connection, ApiKey.CREATE_TOPICS, 7, creation(name), deadline)
                assert int(made.topics[0].error_code) == ErrorCode.NONE, made
                answer = await cluster.request(connection, ApiKey.METADATA, 12, question(name), deadline)
                told.append([partition.leader_id for partition in answer.topics[0].partitions])
        return told

    told = asyncio.run(ask())
    assert [len(leaders) for leaders in told] == [PARTITIONS] * TOPICS
    assert all(leader in (1, 2, 3) for leaders in told for leader in leaders), told
