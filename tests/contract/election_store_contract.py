"""What every election store must do: the guarantees of `ports.ElectionStore`.

A test module derives `Test...` from `ElectionStoreContract` and says how a store and the logs beside it are opened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contract.batches import fill
from raftlake.errors import StorageError
from raftlake.ports.driver import ElectionStore, LogDirectory
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey

GROUP = GroupId("orders", 0, bytes(range(16)))

STATES = [
    ElectionState(),
    ElectionState(epoch=Epoch(7)),
    ElectionState(epoch=Epoch(7), leader_id=NodeId(2)),
    ElectionState(epoch=Epoch(7), voted_key=ReplicaKey(NodeId(3))),
    ElectionState(epoch=Epoch(8), leader_id=NodeId(1), voted_key=ReplicaKey(NodeId(1))),
    ElectionState(epoch=Epoch(9), voted_key=ReplicaKey(NodeId(3), DirectoryId(bytes(range(16))))),
    ElectionState(epoch=Epoch(9), leader_id=NodeId(0), voted_key=ReplicaKey(NodeId(3), DirectoryId(b"\xff" * 16))),
    ElectionState(epoch=Epoch((1 << 31) - 1), leader_id=NodeId((1 << 31) - 1)),
]


@dataclass
class Disk:
    """A node's two stores on one disk."""

    logs: LogDirectory
    elections: ElectionStore


class ElectionStoreContract(ABC):
    @abstractmethod
    def open_disk(self, place: Path) -> Disk: ...

    @abstractmethod
    def restart(self, disk: Disk) -> Disk: ...

    @abstractmethod
    def close(self, disk: Disk) -> None: ...

    @abstractmethod
    def forget(self, disk: Disk, group: GroupId) -> None:
        """Lose the group's election state and nothing else: what a damaged file system may do."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Disk]:
        opened = self.open_disk(tmp_path)
        yield opened
        self.close(opened)

    def test_a_group_that_never_was_has_no_state(self, disk: Disk) -> None:
        assert disk.elections.load(GROUP) is None

    def test_a_new_and_empty_log_has_seen_no_election(self, disk: Disk) -> None:
        disk.logs.open(GROUP)
        assert disk.elections.load(GROUP) in (None, ElectionState())

    @pytest.mark.parametrize("state", STATES)
    def test_what_was_saved_is_loaded(self, disk: Disk, state: ElectionState) -> None:
        disk.elections.save({GROUP: state})
        assert disk.elections.load(GROUP) == state
        assert self.restart(disk).elections.load(GROUP) == state

    def test_the_last_state_counts(self, disk: Disk) -> None:
        for state in STATES:
            disk.elections.save({GROUP: state})
        assert disk.elections.load(GROUP) == STATES[-1]

    @pytest.mark.parametrize("count", [0, 1, 3, 20])
    def test_many_groups_are_saved_in_one_call(self, disk: Disk, count: int) -> None:
        states = {
            GroupId("many", number, bytes(range(16))): ElectionState(epoch=Epoch(number), leader_id=NodeId(number % 3))
            for number in range(count)
        }
        disk.elections.save(states)
        again = self.restart(disk).elections
        assert {group: again.load(group) for group in states} == states

    def test_a_group_that_was_saved_among_many_goes_on_alone(self, disk: Disk) -> None:
        groups = [GroupId("many", number, bytes(range(16))) for number in range(20)]
        disk.elections.save({groups[3]: STATES[1]})
        disk.elections.save(dict.fromkeys(groups, STATES[2]))
        disk.elections.save({groups[3]: STATES[4], groups[4]: STATES[5]})
        again = self.restart(disk).elections
        assert [again.load(group) for group in groups[2:6]] == [STATES[2], STATES[4], STATES[5], STATES[2]]

    def test_deleting_a_group_that_was_saved_among_many_deletes_its_state(self, disk: Disk) -> None:
        groups = [GroupId("many", number, bytes(range(16))) for number in range(20)]
        for group in groups:
            disk.logs.open(group)
        disk.elections.save(dict.fromkeys(groups, STATES[2]))
        disk.logs.delete([groups[0]])
        assert disk.elections.load(groups[0]) is None
        again = self.restart(disk).elections
        assert [again.load(group) for group in groups[:2]] == [None, STATES[2]]

    def test_a_used_log_without_its_state_is_refused(self, disk: Disk) -> None:
        """Epoch 0 would let this node vote a second time (confluentinc/kafka#302)."""
        disk.elections.save({GROUP: STATES[1]})
        fill(disk.logs.open(GROUP), 1)
        self.forget(disk, GROUP)
        with pytest.raises(StorageError, match="quorum-state"):
            disk.elections.load(GROUP)

    def test_a_reset_log_without_its_state_is_refused(self, disk: Disk) -> None:
        disk.elections.save({GROUP: STATES[1]})
        disk.logs.open(GROUP).reset(OffsetAndEpoch(Offset(5), Epoch(1)))
        self.forget(disk, GROUP)
        with pytest.raises(StorageError, match="quorum-state"):
            disk.elections.load(GROUP)

    def test_deleting_a_group_deletes_its_state(self, disk: Disk) -> None:
        disk.elections.save({GROUP: STATES[1]})
        disk.logs.open(GROUP)
        disk.logs.delete([GROUP])
        assert disk.elections.load(GROUP) is None
