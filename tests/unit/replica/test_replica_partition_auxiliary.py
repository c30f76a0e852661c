"""What a replica has to know that begins at an offset: as bytes and back, and what is not taken for it."""

from __future__ import annotations

import pytest

from enginekit import ORDERS, Ground
from raftkit.replica import voter_set
from raftlake.errors import CorruptBatch
from raftlake.raft.types import NodeId, Offset, VoterEndpoint, VoterSet
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.wire import producer_snapshot


def told(ids: list[int]) -> VoterSet:
    """With where they are."""
    return VoterSet(voter_set(ids).voters, {NodeId(each): (VoterEndpoint("P", "h", 9000 + each),) for each in ids})


def producers(count: int, *, has_forgotten: bool = False) -> KnownProducers:
    states = ProducerStates()
    for number in range(count):
        states.record(4_000 + number, 2, 10 * number, 3, Offset(20 + number), 1_000)
    return KnownProducers(producer_snapshot.encode_packed(states.packed(Offset(100))), has_forgotten)


@pytest.mark.parametrize("has_forgotten", [False, True])
@pytest.mark.parametrize("voters", [None, told([1, 2, 3]), told([7])])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_it_comes_back_as_it_was(count: int, voters: VoterSet | None, *, has_forgotten: bool) -> None:
    state = Auxiliary(producers(count, has_forgotten=has_forgotten), voters)
    assert Auxiliary.decode(state.encode(Offset(60))) == state


def test_what_is_cut_or_flipped_is_refused() -> None:
    data = Auxiliary(producers(2), voter_set([1, 2])).encode(Offset(60))
    for length in range(len(data)):
        with pytest.raises(CorruptBatch):
            Auxiliary.decode(data[:length])
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 0x10
        with pytest.raises(CorruptBatch):
            Auxiliary.decode(bytes(flipped))


def test_the_voters_are_those_by_the_records_before_the_offset() -> None:
    """Also where the log begins behind the record that set them: only the snapshot in front of it says them then."""
    ground = Ground()
    partition = ground.lead(ORDERS)
    ground.append(partition, b"a")
    partition.roll()
    ground.append(partition, b"b")
    partition.roll()
    first, second = partition.log.start_points.offsets
    partition.core.voter_history.reset(first, voter_set([1, 2, 3]))
    partition.core.voter_history.record(second, voter_set([1, 2]))

    def voters_at(offset: Offset) -> VoterSet | None:
        data = partition.auxiliary_at(offset)
        assert data is not None
        return Auxiliary.decode(data).voters

    found = voters_at(second)
    assert found is not None and found.ids == (NodeId(1), NodeId(2), NodeId(3))
    partition.core.voter_history.forget_before(second)
    assert voters_at(second) == found
    assert partition.auxiliary_at(Offset(second + 1)) is None, "no point"
