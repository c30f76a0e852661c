"""What the markers of a committed log say of the batches before them."""

from __future__ import annotations

from compactkit import LogInTheMaking
from raftlake.sim.disk.log_image import stored
from raftlake.sim.invariants.fates import Fates
from raftlake.wire.batches import BatchHeader, parse_header


def transactional(log: LogInTheMaking, producer_id: int, sequence: int, epoch: int = 0) -> int:
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
    return log.data(("a", str(sequence)), **fields)


def test_a_batch_belongs_to_the_next_marker_of_its_producer() -> None:
    log = LogInTheMaking()
    transactional(log, 5, 0)
    transactional(log, 6, 0)
    log.marker(5, commit=True)
    transactional(log, 5, 1)
    log.marker(6, commit=False)
    log.marker(5, commit=False)
    transactional(log, 5, 2)
    log.data(("a", "plain"))
    batches = [stored(data) for data in log.batches]
    headers = [parse_header(data) for data in log.batches]
    fates = Fates(batches)
    assert [fates.is_aborted(header) for header in headers if not header.is_control] == [False, True, True, False, False]
    assert fates.marker_of(headers[6]) is None and fates.marker_of(headers[7]) is None
    assert [fates.begin_of(offset, producer_id) for offset, producer_id in ((2, 5), (4, 6), (5, 5))] == [0, 0, 3]
    # What is committed later is read on.
    log.marker(5, commit=False)
    batches.append(stored(log.batches[-1]))
    assert fates.is_aborted(headers[6])


def newest(log: LogInTheMaking) -> list[int]:
    fates = Fates([stored(data) for data in log.batches])
    headers: list[BatchHeader] = [parse_header(data) for data in log.batches]
    return [header.base_offset for header in headers if fates.is_newest(header)]


def test_the_newest_of_a_producer_is_its_last_batch_or_the_marker_that_fenced_it() -> None:
    log = LogInTheMaking()
    transactional(log, 5, 0)
    transactional(log, 5, 1)
    log.marker(5, commit=True)
    assert newest(log) == [1]
    transactional(log, 5, 2)
    log.marker(5, commit=False, producer_epoch=1)
    assert newest(log) == [4]
    transactional(log, 5, 0, epoch=1)
    assert newest(log) == [5]
    log.marker(9, commit=False)
    assert newest(log) == [5, 6]
