"""A partition on a disk that a test chooses, fed with transactions as a follower is, and compared with a plain reading.

Nothing here votes: batches come as if fetched, the high watermark moves when the test says so, and a start is a start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

from enginekit import ORDERS, Ground
from raftlake.ports.driver import LogStore
from raftlake.raft.actions import AppendFetched
from raftlake.raft.types import Epoch, Offset, OffsetAndEpoch
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition.partition import Partition, split_batches
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.start_points import KnownProducers, LogFacts
from raftlake.replica.quorum import static_voters
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire.batches import iterate_headers, read_end_marker
from raftlake.wire.producer_snapshot import ENTRY, ProducerRow, encode_packed
from transactionkit import Reading, Said, data_batch, marker_batch

NOW_MS = 1_000


class Machine(ABC):
    """A disk that can be killed and started again."""

    @abstractmethod
    def open(self) -> LogStore: ...

    @abstractmethod
    def kill(self) -> None:
        """The process ends, or the power fails; what is missing then is seen by the next `open`."""

    @abstractmethod
    def flush(self, log: LogStore) -> None: ...


class FileMachine(Machine):
    def __init__(self, place: Path, segment_bytes: int) -> None:
        self._open = lambda: FileLogDirectory(place, segment_bytes=segment_bytes, post=None)
        self.directory = self._open()

    def open(self) -> LogStore:
        return self.directory.open(ORDERS)

    def kill(self) -> None:
        self.directory.abandon()
        self.directory = self._open()

    def flush(self, log: LogStore) -> None:
        self.directory.flush([log], lambda error: None)


class MemoryMachine(Machine):
    """Loses power each time it is killed."""

    def __init__(self, rng: Random, segment_bytes: int) -> None:
        self.rng = rng
        nobody = SimpleNamespace(port_call=lambda name: None, flush_later=lambda complete, fail: complete())
        self.disk = SimulatedDisk(nobody, segment_bytes=segment_bytes)

    def open(self) -> LogStore:
        return self.disk.open(ORDERS)

    def kill(self) -> None:
        self.disk.crash(self.rng)

    def flush(self, log: LogStore) -> None:
        self.disk.flush([log], lambda error: None)


class Follower:
    """The partition, the batches that it was given, and the proof that it says of them what a plain reading says."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: The batches of the log, and those before its start, in their order.
        self.said: list[Said] = []
        self.high_watermark = 0
        self.epoch = 1
        #: What the producers were at the start of the log.
        self.inherited: KnownProducers | None = None
        self.start()

    def start(self) -> None:
        ground = Ground()
        core = ground.host(ORDERS).core
        log = self.machine.open()
        facts = LogFacts(ORDERS, log, VoterHistory(static_voters(ground.engine.config)), log.start_offset, self.inherited)
        facts.restore(NOW_MS, with_voters=True)
        self.partition = Partition(ORDERS, core, log, facts, lambda: NOW_MS)
        self.said = [each for each in self.said if each.end_offset <= log.start_offset] + list(_batches_in(log))
        self.high_watermark = min(self.high_watermark, log.end_offset)
        self.partition.on_high_watermark(self.high_watermark)

    def restart(self) -> None:
        self.machine.kill()
        self.start()

    def stop_and_start(self) -> None:
        self.partition.save_start_point()
        self.machine.flush(self.log)
        self.restart()

    @property
    def log(self) -> LogStore:
        return self.partition.log

    @property
    def end(self) -> Offset:
        return self.log.end_offset

    # --- what happens to it ---

    def give(self, *batches: bytes | bytearray) -> None:
        """Batches as one answer of a leader; they are at the end of the log."""
        answer = memoryview(b"".join(batches))
        headers = list(iterate_headers(answer))
        fetched = split_batches(answer, headers)
        assert len(fetched) == len(headers) > 0
        self.partition.append_fetched(AppendFetched(batches=tuple(fetched), leader_epoch=Epoch(self.epoch)))
        for batch, header in zip(batches, headers, strict=True):
            self.said.append(Said(header, read_end_marker(batch)))

    def write(self, producer_id: int, sequence: int, *, count: int = 1, epoch: int = 0, transactional: bool = True) -> int:
        """A batch of a producer; where it begins."""
        begin = self.end
        fields = {"epoch": epoch, "count": count, "transactional": transactional, "size": 40}
        self.give(data_batch(producer_id, sequence, base_offset=begin, leader_epoch=self.epoch, **fields))  # type: ignore[arg-type]
        return begin

    def end_of(self, producer_id: int, *, commit: bool = False, epoch: int = 0) -> int:
        """The marker that ends a transaction; where it stands."""
        begin = self.end
        self.give(marker_batch(producer_id, commit=commit, epoch=epoch, base_offset=begin, leader_epoch=self.epoch))
        return begin

    def commit(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.partition.on_high_watermark(high_watermark)

    def cut(self, end: int) -> None:
        self.epoch += 1
        self.partition.truncate(Offset(end))
        self.said = [each for each in self.said if each.end_offset <= end]

    def reset(self, start: int) -> None:
        """The leader says what came before `start`, which was committed here."""
        known = KnownProducers(encode_packed(self.plain_producers(start).packed(start)), has_forgotten=False)
        self.partition.reset(OffsetAndEpoch(Offset(start), Epoch(self.epoch)), known)
        self.inherited = known
        self.said = [each for each in self.said if each.end_offset <= start]

    # --- what it says ---

    @property
    def reading(self) -> Reading:
        return Reading(self.said, self.log.start_offset)

    def plain_producers(self, end: int) -> ProducerStates:
        """Read from the first batch on, as nothing else is."""
        states = ProducerStates()
        for header, marker in self.said:
            if header.base_offset >= end:
                break
            if marker is not None:
                states.end_transaction(marker, header.base_offset, NOW_MS)
            else:
                states.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.record_count,
                    header.base_offset,
                    NOW_MS,
                    header.is_transactional,
                )
        return states

    def require_agreement(self) -> None:
        """Everything that the partition says of transactions is what a plain reading says."""
        partition, reading, end = self.partition, self.reading, self.end
        assert partition.producers.open_transactions == reading.open(end)
        assert list(partition.producers.open_transactions.values()) == sorted(reading.open(end).values())
        assert partition.last_stable_offset == reading.last_stable_offset(self.high_watermark)
        assert rows_of(partition.producers.packed(end)) == rows_of(self.plain_producers(end).packed(end))
        stable = partition.last_stable_offset
        bounds = sorted({self.log.start_offset, stable, *(each.offset for each in self.said if each.offset <= stable)})
        for start in bounds[:: max(1, len(bounds) // 6)]:
            for limit in bounds[:: max(1, len(bounds) // 5)]:
                if self.log.start_offset <= start <= limit:
                    found = partition.aborted(Offset(start), Offset(limit))
                    assert found == reading.aborted(start, limit), (start, limit)


def _batches_in(log: LogStore) -> Iterator[Said]:
    """A power loss takes back what was not synced, and so may bring back what was cut."""
    offset = log.start_offset
    while offset < log.end_offset:
        data = memoryview(log.read(offset, log.end_offset, 1 << 20))
        for header in iterate_headers(data):
            yield Said(header._replace(position=0), read_end_marker(data[header.position : header.end_position]))
            offset = Offset(header.end_offset)


def rows_of(packed: bytes | memoryview) -> list[ProducerRow]:
    return sorted(ProducerRow(*fields) for fields in ENTRY.iter_unpack(packed))
