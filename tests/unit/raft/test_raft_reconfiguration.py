"""What a leader does with its replicas' progress when the voters change."""

from __future__ import annotations

from raftkit.replica import CONFIG, Replica
from raftkit.voters import disk_key, known_voters
from raftlake.raft import actions as do
from raftlake.raft.messages import BeginQuorumEpochRequest, RemoveVoter
from raftlake.raft.reconfiguration import append_voters, learn_voter
from raftlake.raft.roles import Leader
from raftlake.raft.types import NodeId, ReplicaKey, VoterEndpoint

EPOCH = 6
PLACE = (VoterEndpoint("P", "h", 1),)


def leader(*ids: int) -> tuple[Replica, Leader]:
    replica = Replica.leader(epoch=EPOCH, directory=disk_key(1).directory_id, voter_keys=known_voters(ids))
    role = replica.core.role
    assert isinstance(role, Leader)
    return replica, role


def test_progress_moves_with_the_replica_from_voters_to_observers_and_back() -> None:
    replica, role = leader(1, 2, 3)
    replica.fetch(disk_key(2), 3, EPOCH)
    progress = role.voters[NodeId(2)]
    without = replica.core.voters.without(NodeId(2))
    append_voters(replica.core, role, without, replica.now_ms)
    assert role.observers == {NodeId(2): progress} and NodeId(2) not in role.voters
    append_voters(replica.core, role, without.with_voter(disk_key(2), PLACE), replica.now_ms)
    assert role.voters[NodeId(2)] is progress and role.observers == {}


def test_a_new_directory_of_a_voter_begins_with_nothing() -> None:
    replica, role = leader(1, 2, 3)
    replica.fetch(disk_key(2), 3, EPOCH)
    other = ReplicaKey(NodeId(2), disk_key(9).directory_id)
    append_voters(replica.core, role, replica.core.voters.with_voter(other, PLACE), replica.now_ms)
    assert role.voters[NodeId(2)].key == other and role.voters[NodeId(2)].end_offset == -1


def test_who_is_removed_is_not_asked_for_its_endorsement_any_more() -> None:
    """KAFKA-17608: the answer of a voter that is gone, and its retry, must not be looked up among the voters."""
    replica, role = leader(1, 2, 3)
    begin = role.begins.in_flight[NodeId(2)]
    assert isinstance(begin, BeginQuorumEpochRequest)
    replica.fetch(disk_key(3), 3, EPOCH)
    replica.change_voters(RemoveVoter(voter=disk_key(2)))
    replica.fail(2, begin)
    assert NodeId(2) not in role.begins.retry_at_ms
    replica.pass_time(CONFIG.fetch_timeout_ms // 2)
    assert 2 not in replica.sent(BeginQuorumEpochRequest)


def test_parked_fetches_get_the_new_voters_at_once() -> None:
    replica, role = leader(1, 2, 3)
    replica.fetch(disk_key(2), 3, EPOCH)
    assert replica.fetch(disk_key(3), 3, EPOCH) is None
    append_voters(replica.core, role, replica.core.voters.without(NodeId(2)), replica.now_ms)
    replica.actions = replica.core.actions
    assert sorted(answer.replica_id for answer in replica.took(do.AnswerFetch)) == [2, 3]


def test_a_stranger_is_not_learned_nor_a_voter_without_a_directory() -> None:
    replica = Replica.leader(epoch=EPOCH, directory=disk_key(1).directory_id)
    role = replica.core.role
    assert isinstance(role, Leader) and list(role.learned_voters) == [1]
    learn_voter(replica.core, role, disk_key(9))
    learn_voter(replica.core, role, replica.core.voters.voters[NodeId(2)])
    assert list(role.learned_voters) == [1]
    learn_voter(replica.core, role, disk_key(2), PLACE)
    learn_voter(replica.core, role, disk_key(2))
    assert role.learned_voters[NodeId(2)] == (disk_key(2), PLACE), "a Fetch does not take back what an update said"
