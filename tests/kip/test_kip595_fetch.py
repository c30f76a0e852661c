"""KIP-595, sentence by sentence: Fetch, the leader progress timeout and DescribeQuorum. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour. Cluster
ids and the batching of groups are the driver's.
"""

from __future__ import annotations

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica, batch, position
from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft.messages import (
    FetchRequest,
)

#: Records 0..4 of epoch 1, 5..8 of epoch 3.
LOG = (((1, 0), (3, 5)), 9)


# --- Fetch ----------------------------------------------------------------------------------------------------------


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
    then update the quorum-state file and become a 'follower' (may or may not have voting power) of that leader.”
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
    """“If the response has the field DivergingEpoch set, then truncate from the log all of the offsets greater than or
    equal to DivergingEpoch.EndOffset and truncate any offset with an epoch greater than DivergingEpoch.EndOffset.”
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
    """“for this special quorum topic all log appends must be synced to FS before returning.”"""
    replica = Replica.follower(epoch=6)
    replica.answer_fetch(batch(0, 3, 6))
    assert replica.sent(FetchRequest) == {}
    replica.flush()
    (request,) = replica.sent(FetchRequest).values()
    assert request.fetch_offset == 3


# --- leader progress timeout, DescribeQuorum ------------------------------------------------------------------------


def test_a_zombie_leader_steps_down() -> None:
    """“if the leader did not receive Fetch requests from a majority of the quorum for that amount of time, it would begin a
    new election [...] if the returned response includes a newer epoch leader, this zombie leader would step down and
    becomes a follower.” Kafka: after 1.5 x quorum.fetch.timeout.ms it resigns without a new epoch, then probes by
    pre-votes.
    """
    replica = Replica.leader(epoch=6)
    replica.pass_time(CONFIG.check_quorum_timeout_ms)
    assert replica.role == "Resigned"
    replica.pass_until_role("Prospective")
    replica.answer_vote(2, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=8)
    assert replica.view == ("Follower", 8, 3)


def test_a_zombie_leader_does_not_keep_bumping_its_epoch() -> None:
    """“The partitioned leader will keep increasing its epoch, and when it eventually reconnects to the quorum, it could win
    the election with a very large epoch number” - the flaw that pre-vote removes: one bump, to leave its own epoch.
    """
    cluster = Cluster((1, 2, 3), seed=4)
    cluster.start()
    old = cluster.await_leader().local.id
    cluster.run(500)
    epoch = cluster[old].epoch
    cluster.partition([old], [node for node in cluster.nodes if node != old])
    cluster.run(60_000)
    assert cluster[old].epoch == epoch + 1
    cluster.heal()
    cluster.run(10_000)
    assert len({cluster[node].epoch for node in cluster.nodes}) == 1


def test_only_the_leader_describes_the_quorum() -> None:
    """“First check whether the node is the leader.” and “Build the response using current assignment information and cached
    state about replication progress.”
    """
    leader = Replica.leader(epoch=6)
    leader.fetch(2, 1, 6)
    leader.fetch(9, 0, 0)
    lines = [(status.key.id, status.log_end, status.is_voter) for status in leader.core.replica_progress()]
    assert lines == [(1, 1, True), (2, 1, True), (3, -1, True), (9, 0, False)], '"-1 if it is unknown"'
    assert Replica.follower(epoch=6).core.replica_progress() == ()
