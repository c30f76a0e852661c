"""The contract of the remote tier on the simulated store, so that simulated nodes meet nothing that a real tier does not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from contract.tier_adoption_contract import TierAdoptionContract
from contract.tier_contract import Moment, Row, TierContract, TierWorld
from contract.tier_foreign_contract import TierForeignContract
from contract.tier_history_contract import TierHistoryContract
from contract.tier_search_contract import TierSearchContract
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, FileRange, Lineage, RemoteSegment, RemoteTier
from raftlake.raft.types import NodeId, Offset
from raftlake.sim import tier as sim_tier
from raftlake.sim.clock import Scheduler
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.tier import ObjectStore, SimulatedTier
from raftlake.sim.trace import Trace
from raftlake.wire.batches import decode_records, iterate_headers


class Machine:
    """A node that is on. A new incarnation hears nothing of the calls of the one before."""

    def __init__(self, node_id: int) -> None:
        self.node_id = NodeId(node_id)
        self.incarnation = 1

    def deliver(self, incarnation: int, call: Callable[[], None]) -> None:
        if incarnation == self.incarnation:
            call()


class FileReadingTier(SimulatedTier):
    """Machines of the simulator give batches from memory. Those of this suite have files too. `copied` gets the incarnation of
    each copy."""

    def __init__(self, store: ObjectStore, caller: Machine, copied: dict[str, int]) -> None:
        super().__init__(store, caller)
        self._copied = copied

    def copy(self, request: CopyRequest, done: Callable[[Any], None]) -> None:
        self._copied[request.segment_id] = request.lineage.incarnation
        super().copy(replace(request, sources=tuple(map(_bytes_of, request.sources))), done)


def _bytes_of(source: bytes | FileRange) -> bytes:
    if isinstance(source, bytes):
        return source
    path = Path(source.path)
    return path.read_bytes()[source.position :][: source.size] if path.exists() else b""


def run_next(scheduler: Scheduler) -> bool:
    """Let the next thing happen; False where there is none."""
    return bool(scheduler._queue) and scheduler.run_until(scheduler._queue[0][0], 1) > 0


class SimulatedWorld(TierWorld):
    """A store whose calls all are quick, unless a test says otherwise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._scheduler = Scheduler()
        self._store = ObjectStore(self._scheduler, Random(1), CommittedLogs(), Trace(self._scheduler, None))
        self._machines: dict[int, Machine] = {}
        self._incarnations: dict[str, int] = {}
        # The log of these tests is what they copy.
        patch.setattr(self._store, "_require_committed", lambda *_: None)
        self._set_fate("quick")

    def _set_fate(self, fate: str) -> None:
        self._patch.setattr(self._store, "draw_fate", lambda: fate)

    def tier(self, node: int) -> RemoteTier:
        return FileReadingTier(self._store, self._machines.setdefault(node, Machine(node)), self._incarnations)

    def settle(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            assert run_next(self._scheduler), "all calls have ended"

    def crash(self, node: int, request: CopyRequest, moment: Moment) -> None:
        if moment is not Moment.AFTER_COMMIT:
            self._set_fate("stalls for ever")
        self.tier(node).copy(request, lambda _: pytest.fail("answered after its process ended"))
        self._machines[node].incarnation += 1
        self._set_fate("quick")
        if moment is Moment.AFTER_COMMIT:
            self.settle(lambda: self._store.of(request.lineage).index_of(request.base_offset) is not None)

    def delay(self, node: int, request: CopyRequest) -> Callable[[], None]:
        held = Scheduler()
        with pytest.MonkeyPatch.context() as patch:
            # A process that is gone does not try again.
            patch.setattr(sim_tier, "TRIES", 1)
            patch.setattr(self._store, "scheduler", held)
            self.tier(node).copy(request, lambda _: pytest.fail("answered after its process ended"))
            # The table is read, and the commit is on the way.
            assert run_next(held)
        self._machines[node].incarnation += 1

        def arrive() -> None:
            while run_next(held):
                pass

        return arrive

    def shown(self, lineage: Lineage) -> list[Row]:
        rows: list[Row] = []
        for batches in self._store.of(lineage).batches:
            for header in iterate_headers(batches):
                batch = batches[header.position : header.end_position]
                for record in decode_records(batch, include_control=True):
                    place = (record.offset, header.leader_epoch, int(header.is_control), record.timestamp_ms)
                    rows.append((*place, record.key, record.value, record.headers))
        return rows

    def put_foreign_table(self, group: GroupId) -> None:
        self._store.foreign.add(group.topic_id)

    def superseded(self, group: GroupId) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for segment, batches, _ in sorted(self._store.superseded.get(group, []), key=lambda copy: copy[0].base_offset):
            texts = [
                (record.value or b"").decode()
                for header in iterate_headers(batches)
                for record in decode_records(batches[header.position : header.end_position])
            ]
            found.setdefault(self._incarnations[segment.segment_id], []).extend(texts)
        return found

    def faults(self) -> list[str]:
        return []

    def commits(self, group: GroupId) -> int:
        return sum(shown.version for lineage, shown in self._store.lineages.items() if lineage.group == group)

    def damage(self, lineage: Lineage, segment: RemoteSegment) -> None:
        shown = self._store.of(lineage)
        place = shown.segments.index(segment)
        batches = shown.batches[place]
        middle = next(iterate_headers(batches)).end_position - 4
        shown.batches[place] = batches[:middle] + bytes([batches[middle] ^ 1]) + batches[middle + 1 :]

    def put_together(self, lineage: Lineage) -> None:
        """Copies of the simulated store are no files."""

    def lose(self, lineage: Lineage, offset: Offset) -> None:
        shown = self._store.of(lineage)
        place = shown.index_of(offset)
        assert place is not None
        batches = shown.batches[place]
        kept = [header for header in iterate_headers(batches) if not header.base_offset <= offset < header.end_offset]
        shown.batches[place] = b"".join(batches[header.position : header.end_position] for header in kept)

    def take_out(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        self._store.take_out(lineage, segments)

    def put_back(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        self._store.put_back(lineage, segments)


class TestSimulatedTier(TierContract, TierHistoryContract, TierSearchContract, TierAdoptionContract, TierForeignContract):
    """Nodes are machines of the simulator."""

    def make_world(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedWorld:
        return SimulatedWorld(monkeypatch)
