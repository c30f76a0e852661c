"""The producers of a group whose opening ends in an error: the node counts them no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostedkit import FIRST, Hosted
from raftlake.errors import CorruptBatch, RaftlakeError, StorageError, TooManyFiles
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.hosting import hosting as hosting_module
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.start_points import LogFacts
from raftlake.wire.batches import Record, build_batch, iterate_headers


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    found = Hosted(tmp_path)
    yield found
    found.files.abandon()


def partition_of(hosted: Hosted) -> Partition:
    (group,) = [group for group in hosted.ground.engine.partitions if group != METADATA_GROUP]
    return hosted.ground.engine.partitions[group]


def append_idempotent(hosted: Hosted, producer_id: int) -> None:
    partition = partition_of(hosted)
    end = partition.log.end_offset
    batch = build_batch(
        [Record(offset=end, key=None, value=b"v")],
        base_offset=end,
        leader_epoch=0,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    headers = tuple(iterate_headers(batch))
    partition.appending.append(PendingAppend(batch, headers, 1 << 40, lambda _error, _offset: None, idempotent=True))
    hosted.ground.append_waiting(partition)


def refusal(error: RaftlakeError) -> Callable[..., Any]:
    def refuse(*_given: object, **_named: object) -> Any:
        raise error

    return refuse


@pytest.mark.parametrize("error", [TooManyFiles("simulated"), StorageError("simulated")])
@pytest.mark.parametrize("place", ["elections", "impairment", "core"])
def test_what_an_opening_has_read_is_counted_no_longer_when_it_is_refused(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, place: str, error: StorageError
) -> None:
    """Each second of a want of descriptors counted all producers of the group again, until new ones were refused."""
    hosted.create(FIRST)
    hosted.ground.run(100)
    hosted.ground.perform(partition_of(hosted))
    for producer_id in (7, 8):
        append_idempotent(hosted, producer_id)
    partition, tally = partition_of(hosted), hosted.hosting._producers.tally
    assert tally.count == 2
    hosted.files.settle(partition.group)
    hosted.hosting.let_go(partition)
    assert tally.count == 0
    with monkeypatch.context() as patch:
        match place:
            case "elections":
                patch.setattr(hosted.ground.engine.elections, "load", refusal(error))
            case "impairment":
                patch.setattr(hosted.damage, "impairment", refusal(error))
            case _:
                patch.setattr(hosting_module, "RaftGroup", refusal(error))
        for _ in range(3):
            with pytest.raises(type(error)):
                hosted.hosting.open(partition.group)
            assert tally.count == 0
    assert hosted.hosting.open(partition.group) and tally.count == 2


def test_producers_of_a_log_that_cannot_be_understood_are_counted_no_longer(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted.create(FIRST)
    hosted.ground.run(100)
    hosted.ground.perform(partition_of(hosted))
    append_idempotent(hosted, 7)
    partition, tally = partition_of(hosted), hosted.hosting._producers.tally
    hosted.hosting.let_go(partition)
    monkeypatch.setattr(LogFacts, "_read_voters", refusal(CorruptBatch("simulated")))
    monkeypatch.setattr(hosted.damage, "set_aside", refusal(StorageError("the node stops")))
    with pytest.raises(StorageError, match="the node stops"):
        hosted.hosting.open(partition.group)
    assert tally.count == 0
