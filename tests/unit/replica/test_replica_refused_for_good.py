"""Refusals that no repetition changes: each is told once, with a bound, and ends what the client does."""

from __future__ import annotations

from typing import Any

import pytest

from enginekit import Ground
from raftlake.errors import ErrorCode
from raftlake.ports.driver import ClientConnection
from raftlake.replica.apis.fetch import PARTITIONS_MAX
from raftlake.replica.config import ClientContext
from raftlake.replica.refused_for_good import (
    APPEND,
    COMMIT,
    CREATE,
    FETCH,
    FINAL_ERRORS,
    FORGET_MS,
    JOIN,
    MORE,
    SUBJECT_CHARACTERS_MAX,
    TOLD_MAX,
    Refusal,
    RefusedForGood,
)
from raftlake.wire.api import ApiKey
from raftlake.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replica_cluster import Cluster, batch, produce_request

CLIENT = ClientContext("c", "h")
#: Kafka 4.3.1's `Errors` whose exceptions extend RetriableException, and 8, after which librdkafka sends a request again
#: (rd_kafka_err_action).
RETRIABLE = {
    2,
    3,
    5,
    6,
    7,
    8,
    9,
    13,
    14,
    15,
    16,
    19,
    20,
    41,
    51,
    56,
    70,
    71,
    72,
    74,
    75,
    78,
    80,
    83,
    84,
    88,
    89,
    100,
    103,
    106,
    122,
    123,
    133,
}


class World:
    def __init__(self) -> None:
        self.ground = Ground()
        self.refused = RefusedForGood(self.ground.engine)
        self.told: list[Refusal] = []
        self.overflows: list[str] = []
        self.refused.listeners.append(self.told.append)
        self.refused.overflow_listeners.append(self.overflows.append)

    def wait(self, duration_ms: int) -> None:
        """Nothing is due meanwhile."""
        self.ground.time.ms += duration_ms
        self.ground.engine.begin_input()


def test_no_client_goes_on_asking_after_an_error_that_is_final() -> None:
    assert not {int(error) for error in FINAL_ERRORS} & RETRIABLE


def test_each_kind_is_told_once_for_each_subject() -> None:
    world = World()
    for _ in range(3):
        for kind in (JOIN, COMMIT):
            for group in ("a", "b"):
                world.refused.note(kind, group, "no groups", CLIENT)
    assert [(each.kind, each.subject) for each in world.told] == [(JOIN, "a"), (JOIN, "b"), (COMMIT, "a"), (COMMIT, "b")]
    assert {(each.why, each.client) for each in world.told} == {("no groups", CLIENT)}


def test_who_goes_on_is_told_again_after_an_hour() -> None:
    world = World()
    world.refused.note(JOIN, "a", "why", CLIENT)
    world.wait(FORGET_MS - 1)
    world.refused.note(JOIN, "a", "why", CLIENT)
    assert len(world.told) == 1
    world.wait(1)
    for _ in range(2):
        world.refused.note(JOIN, "a", "why", CLIENT)
    assert len(world.told) == 2


def test_ever_new_names_fill_no_disk() -> None:
    world = World()
    for number in range(3 * TOLD_MAX):
        world.refused.note(JOIN, f"group {number}", "why", CLIENT)
    assert len(world.told) == TOLD_MAX and world.overflows == [MORE]
    assert len(world.refused._told) == TOLD_MAX + 1, "no memory either"
    world.wait(FORGET_MS)
    world.refused.note(JOIN, "group 0", "why", CLIENT)
    assert len(world.told) == TOLD_MAX + 1 and world.overflows == [MORE]


def test_a_long_name_is_cut() -> None:
    world = World()
    for end in "ab":
        world.refused.note(JOIN, "g" * SUBJECT_CHARACTERS_MAX + end, "why", CLIENT)
    assert [each.subject for each in world.told] == ["g" * SUBJECT_CHARACTERS_MAX]


@pytest.mark.parametrize(
    "error", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_CONTROLLER]
)
def test_what_passes_is_no_refusal(error: ErrorCode) -> None:
    world = World()
    world.refused.note_error(CREATE, "t", error, "why", CLIENT)
    assert world.told == []


def test_errors_of_one_topic_are_told_apart_and_their_texts_are_not() -> None:
    world = World()
    for size in (1, 2):
        world.refused.note_error(APPEND, "t", ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes", CLIENT)
    world.refused.note_error(APPEND, "t", ErrorCode.INVALID_RECORD, "spoilt", CLIENT)
    assert [each.why for each in world.told] == ["MESSAGE_TOO_LARGE: 1 bytes", "INVALID_RECORD: spoilt"]


# --- at a node ---


def told_by(cluster: Cluster) -> list[Refusal]:
    told: list[Refusal] = []
    for node in cluster.nodes.values():
        node.refused_for_good.listeners.append(told.append)
    return told


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_appends_that_can_never_succeed_are_told_whatever_the_producer_hears(acks: int) -> None:
    cluster = Cluster(1, message_bytes_max=500)
    (group,) = cluster.create_topic("t")
    told, client = told_by(cluster), ClientContext("producer", "10.0.0.9", connection=ClientConnection())
    for _ in range(2):
        request = produce_request(group, batch(bytes(1_000)), acks=acks)
        cluster.send(cluster.leader(group), ApiKey.PRODUCE, request, version=9, client=client)
        cluster.run(100)
    (refusal,) = told
    assert (refusal.kind, refusal.subject, refusal.client) == (APPEND, "t", client)
    assert refusal.why.startswith("MESSAGE_TOO_LARGE: ") and "message.max.bytes=500" in refusal.why


def test_records_that_are_looked_at_are_told_too_and_a_passing_fault_is_not() -> None:
    cluster = Cluster(1)
    (group,) = cluster.create_topic("t")
    told = told_by(cluster)
    damaged = batch(b"x")
    damaged[-1] ^= 1
    assert cluster.produce(group, damaged).error is ErrorCode.CORRUPT_MESSAGE
    assert told == []
    assert (
        cluster.produce(group, batch(b"x", producer_id=7, producer_epoch=-1, base_sequence=0)).error is ErrorCode.INVALID_RECORD
    )
    assert [each.why.partition(":")[0] for each in told] == ["INVALID_RECORD"]


def test_a_fetch_that_is_refused_as_a_whole_is_told() -> None:
    """Java's consumers send it again and again, and hear no reason."""
    cluster = Cluster(1)
    cluster.create_topic("t")
    told = told_by(cluster)

    def fetch(*indexes: int) -> Any:
        parts = [FetchPartition(index, -1, 0, -1, -1, 1_000) for index in indexes]
        request = FetchRequest(wait_ms_max=0, bytes_min=1, topics=[FetchTopic("t", None, parts)])
        return cluster.ask(cluster.leader(), ApiKey.FETCH, request, version=12)

    assert fetch(0).error is ErrorCode.NONE
    assert told == []
    for _ in range(2):
        assert fetch(0, 0).error is ErrorCode.INVALID_REQUEST
    assert [(each.kind, each.subject, each.why) for each in told] == [(FETCH, "test", "it names a partition twice")]
    assert fetch(*range(PARTITIONS_MAX + 1)).error is ErrorCode.INVALID_REQUEST
    assert len(told) == 2 and str(PARTITIONS_MAX) in told[1].why
