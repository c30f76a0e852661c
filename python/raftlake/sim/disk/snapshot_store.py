"""The snapshot files of one simulated machine: `ports.SnapshotStore` in memory, with what a crash may take away or bring back.

Owns which snapshots are durable. One that is not finished is gone after a crash; a deletion is not synced, so a crash may bring
a deleted one back. What is finished never changes. Refuses to know what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from raftlake.errors import DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import OffsetAndEpoch
from raftlake.sim.disk.observer import DiskObserver, SilentObserver
from raftlake.sim.disk.space import Space

Key = tuple[GroupId, OffsetAndEpoch]


class Machine(Protocol):
    """See `disk.Machine`."""

    def port_call(self, name: str) -> None: ...

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None: ...


class MemorySnapshotWriter:
    """See `ports.SnapshotWriter`."""

    def __init__(self, store: SimulatedSnapshots, key: Key) -> None:
        self._store = store
        self._key = key
        self._data = bytearray()
        #: Why nothing comes of it.
        self._full: DiskFull | None = None
        self.is_over = False

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def backlog(self) -> int:
        return 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._store.machine.port_call("write snapshot")
        try:
            self._store.space.take(len(data), "write a snapshot", is_needed=False)
        except DiskFull as full:
            self._full = full
        self._data += data

    def freeze(self, done: Callable[[StorageError | None], None]) -> None:
        self._store.machine.port_call("freeze snapshot")

        def complete() -> None:
            if not self.is_over and self._full is not None:
                self.is_over = True
                done(self._full)
            elif not self.is_over:
                self.is_over = True
                self._store.finish(self._key, bytes(self._data))
                done(None)

        def fail() -> None:
            if not self.is_over:
                self.is_over = True
                done(StorageError(f"simulated: the snapshot {self._key[1]} of {self._key[0]} was not synced"))

        self._store.machine.flush_later(complete, fail)

    def abandon(self) -> None:
        self.is_over = True


class SimulatedSnapshots:
    """The store of one machine, kept over restarts of its node."""

    def __init__(self, machine: Machine, observer: DiskObserver | None = None, space: Space | None = None) -> None:
        self.machine = machine
        self.space = space or Space()
        self._observer = observer or SilentObserver()
        self._finished: dict[Key, bytes] = {}
        #: Deleted since the last crash: the next one may bring them back.
        self._deleted: dict[Key, bytes] = {}
        self._writers: dict[Key, MemorySnapshotWriter] = {}

    @property
    def unfinished_bytes(self) -> int:
        """What has arrived of snapshots that are not durable yet."""
        return sum(writer.size for writer in self._writers.values() if not writer.is_over)

    def ids(self, group: GroupId) -> Sequence[OffsetAndEpoch]:
        return sorted(snapshot_id for owner, snapshot_id in self._finished if owner == group)

    def create(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> MemorySnapshotWriter:
        self.machine.port_call("create snapshot")
        earlier = self._writers.get((group, snapshot_id))
        if earlier is not None:
            earlier.abandon()
        writer = self._writers[group, snapshot_id] = MemorySnapshotWriter(self, (group, snapshot_id))
        return writer

    def finish(self, key: Key, data: bytes) -> None:
        """The snapshot is durable under its name."""
        self._writers.pop(key, None)
        self._finished[key] = data
        self._observer.snapshot_finished(*key, data)

    def size(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> int | None:
        data = self._finished.get((group, snapshot_id))
        return None if data is None else len(data)

    def read(self, group: GroupId, snapshot_id: OffsetAndEpoch, position: int, size_max: int) -> bytes:
        data = self._finished.get((group, snapshot_id))
        if data is None:
            raise StorageError(f"{group}: there is no snapshot {snapshot_id.offset}-{snapshot_id.epoch}")
        return data[position : position + size_max]

    def delete(self, group: GroupId, snapshot_id: OffsetAndEpoch) -> None:
        self.machine.port_call("delete snapshot")
        self._deleted[group, snapshot_id] = self._finished.pop((group, snapshot_id))

    def abandon_unfinished(self, group: GroupId) -> None:
        """What is being written of the group goes with its damaged log."""
        for key, writer in list(self._writers.items()):
            if key[0] == group:
                writer.abandon()
                del self._writers[key]

    def forget(self, group: GroupId) -> None:
        """The group was deleted with all that it had."""
        self.abandon_unfinished(group)
        for files in (self._finished, self._deleted):
            for key in [key for key in files if key[0] == group]:
                del files[key]

    def crash(self, rng: Random) -> None:
        """Lose power."""
        for writer in self._writers.values():
            writer.is_over = True
        self._writers.clear()
        for key, data in self._deleted.items():
            if key not in self._finished and rng.randrange(2):
                self._finished[key] = data
        self._deleted.clear()
