"""KIP-595, sentence by sentence: Fetch, how logs become the same and records committed. Each docstring quotes the sentence.

Where Kafka itself moved on from the text, the docstring says "Kafka:" and the test shows Kafka's behaviour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raftkit.cluster import Cluster
from raftkit.replica import CONFIG, Replica, batch, position
from raftkit.voters import batch_with_voters, disk_key
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId, PeerMessage
from raftlake.raft import actions as do
from raftlake.raft.config import RaftConfig
from raftlake.raft.messages import FetchRequest, FetchResponse
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.storage.epochs import LeaderEpochs, load
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, encode_request
from raftlake.wire.common import LeaderAndEpoch
from raftlake.wire.fetch import EpochEndOffset, FetchPartition, FetchPartitionResult, FetchTopic
from raftlake.wire.fetch import FetchRequest as WireFetchRequest
from raftlake.wire.fetch import FetchResponse as WireFetchResponse
from replica_cluster import Cluster as NodeCluster
from replica_cluster import batch as node_batch
from replica_cluster import produce_request

#: Records 0..4 of epoch 1, 5..8 of epoch 3.
LOG = (((1, 0), (3, 5)), 9)


# --- log reconciliation ---------------------------------------------------------------------------------------------


def test_a_follower_may_have_more_than_its_leader() -> None:
    """“The Raft protocol does not guarantee that the replica with the largest offset is always elected. This means that
    following a leader election, a follower may need to truncate some of the uncommitted entries from its log.”
    """
    cluster = Cluster((1, 2, 3), seed=1)
    for node, epochs in {1: (1, 3), 2: (1, 3), 3: (1, 2, 2, 2, 2)}.items():
        for offset, epoch in enumerate(epochs):
            cluster.nodes[NodeId(node)].disk.batches.append(batch(offset, offset + 1, epoch))
    cluster.start()
    leader = cluster.await_leader()
    assert leader.local.id in (1, 2)
    cluster.run(1_000)
    logs = {tuple(batch.epoch for batch in node.batches) for node in cluster.nodes.values()}
    assert logs == {(1, 3, leader.epoch)}


def test_followers_detect_the_new_leader_and_truncate() -> None:
    """“It is the responsibility of followers to detect leader changes and use FetchQuorumRecords responses to truncate the
    log.” The news of a leader alone cuts nothing.
    """
    replica = Replica.follower(epoch=6, log=LOG)
    replica.begin(3, 7)
    assert replica.took(do.TruncateTo) == []
    replica.answer_fetch(diverging=position(5, 1), source=3)
    assert replica.took(do.TruncateTo) == [do.TruncateTo(end_offset=Offset(5))]


def test_a_response_says_whom_or_what_to_fetch_next() -> None:
    """“Basically it just needs to sends fetches to the current expected leader with the fetch offset. The response may indicate
    either a new leader to fetch from or a new fetch offset.”
    """
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(diverging=position(3, 1))
    ((peer, request),) = replica.sent(FetchRequest).items()
    assert (peer, request.fetch_offset) == (2, 3)
    replica.answer_fetch(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=7)
    ((peer, request),) = replica.sent(FetchRequest).items()
    assert (peer, request.fetch_offset, request.leader_epoch) == (3, 3, 7)


def test_the_leader_checks_the_offset_of_every_request() -> None:
    """“It is also safer because the leader is able to validate the fetch offset on every request rather than relying on the
    follower to detect the epoch changes.”
    """
    replica = Replica.leader(epoch=6, log=LOG)
    assert replica.fetch(2, 10, 6) is None
    for offset, epoch, expected in [(12, 6, (10, 6)), (9, 1, (5, 1)), (9, 2, (5, 1)), (11, 3, (9, 3))]:
        answer = replica.fetch(2, offset, epoch)
        assert answer is not None
        assert answer.diverging == position(*expected)


def test_a_divergence_skips_a_whole_epoch() -> None:
    """“This is an optimization to truncation to let the follower truncate as much as possible to get to the starting divergence
    point with fewer Fetch round-trips.”
    """
    leader = Replica.leader(epoch=9, log=(((1, 0), (6, 100)), 200))
    follower = Replica.follower(local=2, epoch=9, leader=1, log=(((1, 0), (4, 50)), 180))
    (request,) = follower.sent(FetchRequest).values()
    answer = leader.fetch(2, request.fetch_offset, request.last_fetched_epoch)
    assert answer is not None
    follower.answer_fetch(diverging=answer.diverging)
    assert follower.core.log_end == 50, "all of epoch 4 in one round"


def test_an_epoch_that_the_leader_does_not_know_has_diverged() -> None:
    """“For example, If the fetcher's last epoch is X which does not match the epoch of the offset prior to the fetching offset,
    then it means that all the records with epoch X on the follower may have diverged and hence could be truncated.”
    """
    leader = Replica.leader(epoch=6, log=LOG)
    answer = leader.fetch(2, 8, 2)
    assert answer is not None
    assert answer.diverging is not None
    assert answer.diverging.epoch < 2


@pytest.mark.parametrize(("offset", "epoch"), [(9, 2), (6, 2), (7, 4), (12, 3), (3, 0)])
def test_what_lies_behind_a_divergence_differs(offset: int, epoch: int) -> None:
    """“In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    indicates the largest epoch and its end offset such that subsequent records are known to diverge”
    """
    replica = Replica.leader(epoch=6, log=LOG)
    epochs = [1] * 5 + [3] * 4 + [6]
    answer = replica.fetch(2, offset, epoch)
    assert answer is not None
    assert answer.diverging is not None
    known = [other for other in epochs if other <= epoch]
    assert answer.diverging == position(len(known), max(known, default=0))


def test_epochs_are_kept_beside_the_log_and_in_memory(tmp_path: Path) -> None:
    """“Kafka maintains a leader-epoch-checkpoint file on disk, the contents of which is cached in memory. After every epoch
    change is observed, we write the epoch and its start offset to this file and update the cache.”
    """
    epochs = LeaderEpochs(tmp_path)
    for epoch, offset in [(1, 0), (1, 3), (3, 5)]:
        epochs.note(Epoch(epoch), Offset(offset))
        epochs.save()
        assert load(tmp_path) == list(epochs.entries)
    assert list(epochs.entries) == [(1, 0), (3, 5)]


def test_a_voter_set_in_the_log_changes_the_role() -> None:
    """“Note that followers will have to check any records received for the presence of control records. Specifically a
    follower/observer must check for voter assignment messages which could change its role.”
    """
    replica = Replica.follower(local=9, epoch=6, leader=2, directory=disk_key(9).directory_id)
    replica.pass_time(CONFIG.fetch_timeout_ms)
    assert replica.role == "Follower", "an observer never campaigns"
    replica.answer_fetch(batch_with_voters(0, 3, (1, 2, 9)))
    assert replica.core.is_voter
    replica.pass_until_role("Prospective")
    observer = Replica.follower(epoch=6, leader=2, directory=disk_key(1).directory_id)
    observer.answer_fetch(batch_with_voters(0, 3, (2, 3)), high_watermark=3)
    observer.pass_time(3 * CONFIG.fetch_timeout_ms)
    assert (observer.core.is_voter, observer.role) == (False, "Follower")


# --- commitment -----------------------------------------------------------------------------------------------------


def test_only_an_entry_of_the_own_epoch_commits_older_ones() -> None:
    """“The Raft protocol requires the leader to only commit entries from any previous epoch if the same leader has already
    successfully replicated an entry from the current epoch.”
    """
    replica = Replica.leader(epoch=6, log=LOG)
    for voter in (2, 3):
        replica.fetch(voter, 9, 3)
    assert replica.core.high_watermark == 0


def test_the_leader_of_the_figure_loses_what_was_not_committed() -> None:
    """“Although "2" is successfully written to a majority of the nodes, the risk is that S5 could still become leader, which
    would lead to the truncation of "2" even though it is present on a majority of nodes.” The figure's state (c): S1 leads
    epoch 4, its entry of epoch 2 is on S1, S2 and S3; S5 holds one of epoch 3 and wins epoch 5.
    """
    s1 = Replica.leader(local=1, epoch=4, voters=(1, 2, 3, 4, 5), log=(((1, 0), (2, 1)), 2))
    for voter in (2, 3):
        s1.fetch(voter, 2, 2)
    assert s1.core.high_watermark == 0, "on a majority, and not committed"
    s2 = Replica.unattached(local=2, epoch=4, voters=(1, 2, 3, 4, 5), log=(((1, 0), (2, 1)), 2))
    assert s2.vote(5, 5, (2, 3)).vote_granted
    s2.begin(5, 5)
    s5 = Replica.leader(local=5, epoch=5, voters=(1, 2, 3, 4, 5), log=(((1, 0), (3, 1)), 2))
    answer = s5.fetch(2, 2, 2)
    assert answer is not None
    assert answer.diverging == position(1, 1)
    s2.answer_fetch(diverging=answer.diverging)
    assert s2.core.log_end == 1


def test_an_append_is_answered_only_when_committed() -> None:
    """“Therefore, as long as we do not respond to client's request for the entries it added until the high watermark is
    advanced beyond it then this extra condition is satisfied.”
    """
    cluster = NodeCluster(raft=RaftConfig(fetch_timeout_ms=5_000))
    (group,) = cluster.create_topic("t")
    leader = cluster.leader(group)
    cluster.cut(leader.config.node_id)
    answers = cluster.send(leader, ApiKey.PRODUCE, produce_request(group, node_batch(b"x"), timeout_ms=60_000))
    cluster.run(1_000)
    partition = leader.partitions[group]
    assert partition.log.end_offset == partition.high_watermark + 1
    assert answers == []
    cluster.heal()
    cluster.run(5_000, until=lambda: bool(answers))
    result = answers[0].topics[0].partitions[0]
    assert result.error is ErrorCode.NONE
    assert leader.partitions[group].high_watermark > result.base_offset


@pytest.mark.parametrize("log_end", [0, 9])
def test_the_high_watermark_stands_still_until_the_epoch_has_a_record(log_end: int) -> None:
    """“The high watermark for the quorum is not advanced until a record from the current epoch has been written.”"""
    log = LOG if log_end else ((), 0)
    replica = Replica.leader(epoch=6, log=log, flushed=False)
    last = 3 if log_end else 0
    for voter in (2, 3):
        replica.fetch(voter, log_end, last)
    assert replica.core.high_watermark == 0
    replica.flush()
    replica.fetch(2, log_end + 1, 6)
    assert replica.core.high_watermark == log_end + 1


def test_recent_appends_commit_without_new_ones() -> None:
    """“Without this new message, it could be some time before a new entry is written, which could prevent recent appends from
    being committed.”
    """
    cluster = Cluster((1, 2, 3), seed=3)
    cluster.start()
    old = cluster.await_leader()
    cluster.run(500)
    end = cluster.append(old.local.id, "recent")
    cluster.run(2)
    cluster.crash(old.local.id)
    new = cluster.await_leader()
    assert new.high_watermark > end, "nobody appended anything"
    assert "recent" in cluster.nodes[new.local.id].applied


def test_a_record_counts_when_a_majority_has_acknowledged_it() -> None:
    """“In order to commit a record, it must be replicated to a majority of nodes. This includes both propagating the
    record data from the leader to the follower and propagating the successful write of that record from the follower
    back to the leader.”
    """
    replica = Replica.leader(epoch=6, voters=(1, 2, 3, 4, 5))
    replica.append(1)
    replica.flush()
    committed = []
    for voter in (2, 3, 4):
        replica.fetch(voter, 1, 6)
        replica.fetch(voter, 2, 6)
        committed.append(replica.core.high_watermark)
    assert committed == [0, 2, 2]


def test_one_fetch_of_a_group_is_under_way_at_a_time() -> None:
    """“In the proposal here, we do not pipeline because the leader relies on getting the next offset from the Fetch
    request.”
    """
    replica = Replica.follower(epoch=6, log=LOG)
    assert len(replica.sent(FetchRequest)) == 1
    for _ in range(20):
        replica.pass_time(10)
        assert replica.sent(FetchRequest) == {}
    replica.answer_fetch(batch(9, 10, 6))
    replica.flush()
    assert len(replica.sent(FetchRequest)) == 1


# --- the wire -------------------------------------------------------------------------------------------------------


def encoded_result(body: FetchResponse) -> FetchPartitionResult:
    """What goes over the wire for one group's answer."""
    group = GroupId("t", 0, bytes(15) + b"\1")
    rpc = FetchRpc(
        cluster_id=None, replica_id=NodeId(2), session_id=0, session_epoch=-1, wait_ms_max=0, size_max=1, messages=()
    )
    reply = FetchReply(error=ErrorCode.NONE, messages=(PeerMessage(group, body),))
    header = RequestHeader(ApiKey.FETCH, 18, 1, "raftlake-node-2")
    answer = PeerCodec(node_id=NodeId(1), peers={}).encode_reply(header, rpc, reply)
    assert isinstance(answer, WireFetchResponse)
    ((result,),) = [topic.partitions for topic in answer.topics]
    return result


def test_fetch_has_a_field_for_the_epoch_before_its_offset() -> None:
    """“As stated, we shall just reuse existing Fetch API, with an additional FetchEpoch field to allow leader to do the
    divergence check as necessary.” Kafka: LastFetchedEpoch, from version 12.
    """
    part = FetchPartition(
        index=0, current_leader_epoch=6, fetch_offset=9, last_fetched_epoch=3, log_start_offset=0, bytes_max=1
    )
    for version, expected in [(11, -1), (12, 3), (18, 3)]:
        asked = WireFetchRequest(wait_ms_max=0, bytes_min=0, topics=[FetchTopic("t", bytes(15) + b"\1", [part])])
        frame = b"".join(map(bytes, encode_request(ApiKey.FETCH, version, 1, None, asked)))
        header, request = decode_request(frame[4:])
        assert isinstance(request, WireFetchRequest)
        assert (header.api_version, request.topics[0].partitions[0].last_fetched_epoch) == (version, expected)


def test_fetch_answers_name_divergence_and_leader() -> None:
    """“We would also add two new optional structs to the FetchResponse: NextFetchOffsetAndEpoch and CurrentLeader. The first is
    provided if the FetchRequest does not specify a valid offset and epoch.” Kafka: DivergingEpoch and CurrentLeader, tagged.
    """
    body = FetchResponse(
        error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6), high_watermark=Offset(4), diverging=position(5, 1)
    )
    assert encoded_result(body).diverging_epoch == EpochEndOffset(1, 5)
    plain = encoded_result(FetchResponse(error=ErrorCode.NONE, leader_id=NodeId(1), leader_epoch=Epoch(6)))
    assert plain.diverging_epoch is None


def test_replicas_are_always_told_the_leader() -> None:
    """“The second is the current leader, which will always be provided for fetches from the metadata quorum, but is ignored in
    normal partition replication.” Here every partition is a quorum.
    """
    for error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        body = FetchResponse(error=error, leader_id=NodeId(3), leader_epoch=Epoch(6))
        assert encoded_result(body).current_leader == LeaderAndEpoch(3, 6)


def test_a_follower_truncates_to_the_offset_that_it_is_told() -> None:
    """“A follower handles this by attempt to truncate to the next offset specified in the response.”"""
    replica = Replica.follower(epoch=6, log=LOG)
    replica.answer_fetch(diverging=position(7, 3))
    assert replica.took(do.TruncateTo) == [do.TruncateTo(end_offset=Offset(7))]
    (request,) = replica.sent(FetchRequest).values()
    assert (request.fetch_offset, request.last_fetched_epoch) == (7, 3)
