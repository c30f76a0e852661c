"""What every remote tier must find by time: the guarantee 11 of `ports.RemoteTier`.

A test module derives `Test...` from `TierContract` and this class.
"""

from __future__ import annotations

import pytest

from contract.tier_contract import LINEAGE, TierWorld, request_for
from contract.tier_history_contract import OTHER, copied
from raftlake.ports.tier import CopyRequest, FoundRecord, Lineage, SearchRequest, TierError
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.batches import Record, build_batch
from raftlake.wire.control import leader_change_batch

#: Epoch and times of each batch; None is a control record, which has a later time than all others.
Batches = list[tuple[int, list[int] | None]]


def timed(base: int, segment_id: str, batches: Batches, lineage: Lineage = LINEAGE) -> CopyRequest:
    data = b""
    for epoch, times in batches:
        if times is None:
            data += bytes(leader_change_batch(base, epoch, 1 << 40, 1, [1], [1]))
            base += 1
            continue
        records = [Record(timestamp_ms=time, value=b"v") for time in times]
        data += bytes(build_batch(records, base_offset=base, leader_epoch=epoch, timestamp_ms=0))
        base += len(times)
    return request_for(data, segment_id, lineage=lineage)


def search(
    world: TierWorld, timestamp_ms: int | None, start: int = 0, end: int = 1 << 40, lineage: Lineage = LINEAGE
) -> tuple[int, int, int] | TierError | None:
    """Offset, time and epoch."""
    asked = SearchRequest(lineage=lineage, timestamp_ms=timestamp_ms, start_offset=Offset(start), end_offset=Offset(end))
    answer = world.ask(lambda done: world.tier(1).search(asked, done))
    assert answer is None or isinstance(answer, FoundRecord | TierError)
    return (answer.offset, answer.timestamp_ms, answer.epoch) if isinstance(answer, FoundRecord) else answer


class TierSearchContract:
    """The suite."""

    @pytest.fixture
    def timed_world(self, world: TierWorld) -> TierWorld:
        """Times that go up and down, over three copies and two epochs, with a control record before the second epoch."""
        copied(
            world,
            timed(0, "a", [(3, [1_000, 1_007, 1_003]), (3, [2_000])]),
            timed(4, "b", [(4, None), (4, [1_500, 2_500])]),
            timed(7, "c", [(4, [1_800, 2_500, 2_200])]),
            timed(0, "d", [(4, [9_000, 9_001])], OTHER),
        )
        return world

    @pytest.mark.parametrize(
        ("time", "found"),
        [
            (0, (0, 1_000, 3)),
            (1_000, (0, 1_000, 3)),
            (1_001, (1, 1_007, 3)),
            (1_008, (3, 2_000, 3)),
            (2_000, (3, 2_000, 3)),
            (2_001, (6, 2_500, 4)),
            (2_500, (6, 2_500, 4)),
            (2_501, None),
            (None, (6, 2_500, 4)),
        ],
    )
    def test_the_first_record_of_a_time_or_later_is_found(
        self, timed_world: TierWorld, time: int | None, found: tuple[int, int, int] | None
    ) -> None:
        assert search(timed_world, time) == found

    @pytest.mark.parametrize(
        ("time", "start", "end", "found"),
        [
            (1_000, 1, 9, (1, 1_007, 3)),
            (2_001, 0, 6, None),
            (2_001, 7, 10, (8, 2_500, 4)),
            (2_001, 7, 8, None),
            (None, 0, 6, (3, 2_000, 3)),
            (None, 7, 8, (7, 1_800, 4)),
            (None, 9, 100, (9, 2_200, 4)),
            (None, 4, 5, None),
            (1, 10, 100, None),
        ],
    )
    def test_what_lies_outside_of_the_range_is_not_found(
        self, timed_world: TierWorld, time: int | None, start: int, end: int, found: tuple[int, int, int] | None
    ) -> None:
        assert search(timed_world, time, start, end) == found

    def test_each_lineage_has_its_own_times(self, timed_world: TierWorld) -> None:
        assert search(timed_world, 2_501, lineage=OTHER) == (0, 9_000, 4)
        assert search(timed_world, None, lineage=OTHER) == (1, 9_001, 4)
        assert search(timed_world, 0, lineage=Lineage(LINEAGE.group._replace(partition=1), 0)) is None

    def test_a_deleted_record_is_not_found(self, timed_world: TierWorld) -> None:
        timed_world.ask(lambda done: timed_world.tier(1).delete(LINEAGE, Epoch(5), Offset(4), done))
        assert search(timed_world, 0) == (5, 1_500, 4)
