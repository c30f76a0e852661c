"""KIP-595, sentence by sentence: Fetch, what is asked and answered. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

import pytest

from raftkit.replica import CONFIG, Replica, batch, position
from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc
from raftlake.raft import actions as do
from raftlake.raft.messages import BeginQuorumEpochRequest, FetchRequest
from raftlake.raft.types import NodeId
from replica_cluster import Cluster as NodeCluster

#: Records 0..4 of epoch 1, 5..8 of epoch 3.
LOG = (((1, 0), (3, 5)), 9)


def test_voters_and_observers_fetch_from_the_leader() -> None:
    """“The fetch request is sent by both voters and observers to the current leader in order to replicate log changes. For
    voters this also serves as a liveness check of the leader.”
    """
    for local in (1, 9):
        assert set(Replica.follower(local=local, epoch=6, leader=2).sent(FetchRequest)) == {2}
    voter, observer = Replica.follower(epoch=6), Replica.follower(local=9, epoch=6)
    for replica in (voter, observer):
        replica.pass_time(CONFIG.fetch_timeout_ms)
    assert (voter.role, observer.role) == ("Prospective", "Follower")


def test_a_fetch_carries_the_epoch_of_the_last_local_record() -> None:
    """“in addition to including an offset to fetch from, they also indicate the epoch of the last offset that they have in
    their local log”
    """
    (request,) = Replica.follower(epoch=6, log=LOG).sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (9, 3)


def test_offset_and_epoch_that_do_not_match_are_answered_with_the_divergence() -> None:
    """“The leader always checks whether the fetch offset and fetch epoch are consistent with its own log. If they do not
    match, the fetch response will indicate the largest epoch and its end offset before the requested epoch.” and “return
    a empty response (no records included in the response)”
    """
    answer = Replica.leader(epoch=6, log=LOG).fetch(2, 7, 2)
    assert answer is not None
    assert (answer.error, answer.diverging) == (ErrorCode.NONE, position(5, 1))


def test_the_start_of_the_next_epoch_is_a_valid_offset() -> None:
    """“FetchOffset is expected to be in the range of offsets with an epoch of LastFetchedEpoch or it is the start offset of
    the next epoch in the log.”
    """
    for offset, epoch in [(1, 1), (5, 1), (6, 3), (9, 3)]:
        answer = Replica.leader(epoch=6, log=LOG).fetch(2, offset, epoch)
        assert answer is not None
        assert answer.diverging is None


def test_a_majority_holding_an_older_record_does_not_commit_it() -> None:
    """“we only advance the high-watermark if the current leader has replicated at least one entry to majority of quorum to
    its current epoch. Otherwise, the high watermark is set to the maximum offset which has been replicated to a majority
    of the voters.”
    """
    replica = Replica.leader(epoch=6, log=LOG)
    replica.fetch(2, 9, 3)
    assert replica.core.high_watermark == 0
    replica.fetch(2, 10, 6)
    assert replica.core.high_watermark == 10
    replica.append(5)
    replica.flush()
    replica.fetch(2, 13, 6)
    assert replica.core.high_watermark == 13


def test_only_voters_move_the_high_watermark() -> None:
    """“If the request is from a voter not an observer, the leader can possibly advance the high-watermark.”"""
    replica = Replica.leader(epoch=6, log=LOG)
    for observer in (7, 8, 9):
        replica.fetch(observer, 10, 6)
    assert replica.core.high_watermark == 0


def test_a_fenced_follower_follows_whom_the_response_names() -> None:
    """“If the response contains FENCED_LEADER_EPOCH error code, check the leaderId from the response. If it is defined,
    then update the quorum-state file and become a "follower" (may or may not have voting power) of that leader.”
    """
    for local in (1, 9):
        replica = Replica.follower(local=local, epoch=6, leader=2)
        replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7)
        assert replica.view == ("Follower", 7, 3)
        assert isinstance(replica.actions[0], do.SaveElectionState)


def test_a_fenced_follower_without_a_name_asks_the_others() -> None:
    """“Otherwise, retry to the Fetch request again against one of the remaining voters at random; in the mean time it may
    receive BeginQuorumEpoch request which would also update the new epoch / leader as well.” Ours asks them in turn.
    """
    replica = Replica.follower(epoch=6, leader=2)
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=-1, epoch=7)
    assert len(replica.sent(FetchRequest)) == 1
    replica.begin(3, 7)
    assert replica.view == ("Follower", 7, 3)


def test_a_divergence_truncates_and_fetches_anew() -> None:
    """“If the response has the field [...] DivergingEpoch set, then truncate from the log all of the offsets greater than or
    equal to [...] DivergingEpoch.EndOffset and truncate any offset with an epoch greater than DivergingEpoch.EndOffset.”
    """
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(diverging=position(3, 1))
    assert [type(action) for action in replica.actions] == [do.TruncateTo, do.SendRequest]
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (3, 1)
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(diverging=position(8, 2))
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (5, 1), "all of epoch 3 went"


def test_several_rounds_find_the_first_diverging_offset() -> None:
    """“Note that it may take multiple rounds of FetchQuorumRecords in order to find the first offset that diverges in the
    worst case.”
    """
    leader = Replica.leader(epoch=9, log=(((1, 0), (4, 2), (6, 5)), 8))
    follower = Replica.follower(epoch=9, leader=2, log=(((1, 0), (3, 1), (5, 4), (7, 6)), 9))
    rounds = 0
    while True:
        (request,) = follower.sent(FetchRequest).values()
        answer = leader.fetch(3, request.fetch_offset, request.last_fetched_epoch)
        rounds += 1
        if answer is None or answer.diverging is None:
            break
        follower.answer_fetch(diverging=answer.diverging)
    assert follower.core.log_end_position == position(1, 1)
    assert rounds == 4


def test_a_follower_acknowledges_only_what_it_has_synced() -> None:
    """“Also note that unlike other Kafka topic partition data whose log appends are persisted asynchronously” [...]: here for
    followers, whose next fetch is their answer. All partitions are such quorums.
    """
    replica = Replica.follower(epoch=6)
    replica.answer_fetch(batch(0, 3, 6))
    assert replica.sent(FetchRequest) == {}
    replica.flush()
    (request,) = replica.sent(FetchRequest).values()
    assert request.fetch_offset == 3


# --- what a leader checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claimed", "is_refused"), [(None, False), ("own", False), ("", True), ("another", True)])
def test_the_cluster_id_of_a_fetch_is_checked_unless_it_is_null(claimed: str | None, is_refused: bool) -> None:
    """“Check that the clusterId if not null matches the cached value in meta.properties.”"""
    cluster = NodeCluster()
    cluster.run(3_000)
    leader = cluster.leader()
    replies: list[FetchReply] = []
    rpc = FetchRpc(
        cluster_id=leader.cluster_id if claimed == "own" else claimed,
        replica_id=NodeId(9),
        session_id=0,
        session_epoch=-1,
        wait_ms_max=0,
        size_max=1,
        messages=(),
    )
    leader.receive(PeerConnection(), rpc, replies.append)  # type: ignore[arg-type]
    cluster.run(10, until=lambda: bool(replies))
    assert (replies[0].error is ErrorCode.INCONSISTENT_CLUSTER_ID) == is_refused


@pytest.mark.parametrize(
    ("epoch", "error"), [(5, ErrorCode.FENCED_LEADER_EPOCH), (6, None), (7, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_fetch_of_another_epoch_is_rejected(epoch: int, error: ErrorCode | None) -> None:
    """“First ensure that the leader epoch from the request is the same as the locally cached value. If not, reject this request
    with either the FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH error.”
    """
    answer = Replica.leader(epoch=6).fetch(2, 1, min(epoch, 6), epoch=epoch)
    assert (None if answer is None else answer.error) == error


def test_who_fetches_with_an_older_epoch_learns_the_newer_one() -> None:
    """“If the leader epoch is smaller, then eventually this leader's BeginQuorumEpoch would reach the voter and that
    voter would update the epoch.”
    """
    leader = Replica.leader(epoch=6)
    (begin, *_) = leader.sent(BeginQuorumEpochRequest).values()
    voter = Replica.follower(local=2, epoch=5, leader=3)
    assert voter.begin(begin.leader_id, begin.leader_epoch).error is ErrorCode.NONE
    assert voter.view == ("Follower", 6, 1)


def test_a_newer_epoch_of_a_fetch_is_not_adopted() -> None:
    """“If the leader epoch is larger, then eventually the receiver would learn about the new epoch anyways. Actually this case
    should not happen since, unlike the normal partition replication protocol, leaders are always the first to discover that
    they have been elected.”
    """
    leader = Replica.leader(epoch=6)
    leader.fetch(2, 1, 6, epoch=9)
    assert leader.view == ("Leader", 6, 1)
    assert leader.took(do.SaveElectionState) == []
