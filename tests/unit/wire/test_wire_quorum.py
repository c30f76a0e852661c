"""A quorum's description: out of a DescribeQuorum answer, and what every command and the HTTP front show of it."""

from __future__ import annotations

import dataclasses
import uuid

import pytest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode as KioError
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64, u16

from quorumkit import described_quorum, described_replica
from raftlake.cli.quorum import COLUMNS
from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.wire.quorum import (
    QuorumDescription,
    max_follower_lag,
    quorum_description,
    replication_facts,
    status_facts,
)


def quorum_answer(code: KioError = KioError.none) -> DescribeQuorumResponse:
    replica = ReplicaState(
        replica_id=BrokerId(2),
        replica_directory_id=uuid.UUID(int=5),
        log_end_offset=i64(9),
        last_fetch_timestamp=i64(-1),
        last_caught_up_timestamp=i64(77),
    )
    partition = PartitionData(
        partition_index=i32(0),
        error_code=code,
        error_message=None,
        leader_id=BrokerId(2),
        leader_epoch=i32(3),
        high_watermark=i64(8),
        current_voters=(replica,),
        observers=(),
    )
    listeners = (Listener(name="CONTROLLER", host="::1", port=u16(9092)),)
    return DescribeQuorumResponse(
        error_code=KioError.none,
        error_message=None,
        topics=(TopicData(topic_name=TopicName("t"), partitions=(partition,)),),
        nodes=(Node(node_id=BrokerId(2), listeners=listeners),),
    )


def test_a_quorum_description() -> None:
    described = quorum_description(quorum_answer(), "c")
    assert isinstance(described, QuorumDescription)
    assert (described.cluster_id, described.leader_id, described.leader_epoch, described.high_watermark) == ("c", 2, 3, 8)
    assert described.listeners == {2: ("CONTROLLER://[::1]:9092",)}
    (voter,) = described.voters
    assert (voter.replica_id, voter.directory_id, voter.log_end_offset) == (2, (5).to_bytes(16), 9)
    assert (voter.last_fetch_timestamp_ms, voter.last_caught_up_timestamp_ms) == (-1, 77)


def test_a_follower_says_that_it_does_not_lead() -> None:
    answer = quorum_description(quorum_answer(KioError.not_leader_or_follower), "c")
    assert answer is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answer_that_describes_nothing_is_an_error() -> None:
    refused = dataclasses.replace(quorum_answer(), error_code=KioError.unknown_server_error, topics=())
    with pytest.raises(RequestRejected, match="UNKNOWN_SERVER_ERROR: describe quorum: no reason given"):
        quorum_description(refused, "c")
    with pytest.raises(WireError, match="exactly one partition"):
        quorum_description(dataclasses.replace(quorum_answer(), topics=()), "c")


def test_the_rows_list_the_leader_first() -> None:
    rows = replication_facts(described_quorum())
    assert [(row["nodeId"], row["lag"], row["status"]) for row in rows] == [
        (2, 0, "Leader"),
        (1, 2, "Follower"),
        (3, 12, "Follower"),
        (4, 37, "Observer"),
    ]
    assert rows[0]["lastFetchTimestamp"] == -1
    assert list(rows[0]) == [name[0].lower() + name[1:] for name in COLUMNS]


def test_without_the_leaders_view_the_lags_are_unknown_and_there_are_no_rows() -> None:
    no_leader = described_quorum(9)
    unseen = [described_replica(node_id, -1, -1) for node_id in (1, 2, 3)]
    for described in (no_leader, described_quorum(2, *unseen)):
        facts = status_facts(described)
        assert (facts["maxFollowerLag"], facts["maxFollowerLagTimeMs"]) == (-1, -1)
        assert [voter["id"] for voter in facts["currentVoters"]] == [1, 2, 3]
        assert replication_facts(described) == []


LEADER = described_replica(2, 42, 1000)


@pytest.mark.parametrize(
    ("followers", "lag"),
    [
        # As Kafka's MetadataQuorumCommand: the lowest log end, and the time since that voter last had everything.
        ([(1, 40, 950), (3, 30, 400)], (12, 600)),
        # One that has never fetched from this leader lacks all of the log, and nobody knows since when.
        ([(1, 42, 990), (3, -1, -1)], (43, -1)),
        # One that fetched and never had everything.
        ([(1, 42, 990), (3, 41, -1)], (1, -1)),
        # Nothing is appended while a voter is away: its records are all there, and its time tells.
        ([(1, 42, 990), (3, 42, 400)], (0, 600)),
        ([(1, 42, 990), (3, 42, 995)], (0, 10)),
        ([], (0, 0)),
    ],
)
def test_the_lag_is_that_of_the_slowest_voter(followers: list[tuple[int, int, int]], lag: tuple[int, int]) -> None:
    voters = [LEADER, *(described_replica(*follower) for follower in followers)]
    for order in (voters, voters[::-1]):
        described = described_quorum(2, *order)
        assert max_follower_lag(described) == lag
        facts = status_facts(described)
        assert (facts["maxFollowerLag"], facts["maxFollowerLagTimeMs"]) == lag
        assert max(row["lag"] for row in replication_facts(described) if row["status"] != "Observer") == lag[0]


def test_a_leader_that_has_removed_itself_is_no_voter_and_still_the_measure() -> None:
    described = dataclasses.replace(
        described_quorum(), voters=(described_replica(1, 40, 950),), observers=(LEADER, described_replica(4, 5, -1))
    )
    assert max_follower_lag(described) == (2, 50)
    assert [(row["nodeId"], row["status"]) for row in replication_facts(described)] == [
        (2, "Leader"),
        (1, "Follower"),
        (4, "Observer"),
    ]
