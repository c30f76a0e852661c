"""Damage in a simulated log: who gets to see it, when, and what is noted as lost."""

from __future__ import annotations

import pytest

from raftlake.errors import DamagedData, StorageError
from raftlake.raft.types import Epoch, Impairment, Offset
from raftlake.sim.disk.decay import SEEN_AT_START, UNKNOWN_END, Decay
from raftlake.sim.disk.log_image import LogImage, StoredBatch

FLIPPED, UNREADABLE = 70, -1


def image_of(*epochs: int, start: int = 0) -> LogImage:
    """Batches of two records and 100 bytes each, in these epochs."""
    bases = range(start, start + 2 * len(epochs), 2)
    batches = [StoredBatch(base, base + 2, epoch, 0, bytes(100)) for base, epoch in zip(bases, epochs, strict=True)]
    return LogImage(start=start, batches=batches, ends=[batch.end for batch in batches], synced_end=start)


def decay_of(image: LogImage, *indexes: int, byte: int = FLIPPED) -> Decay:
    return Decay(damaged={(image.batches[index].base, image.batches[index].epoch): byte for index in indexes})


def test_a_read_sees_one_flipped_bit_and_the_batch_stays_as_it_was() -> None:
    image = image_of(1, 1)
    decay = decay_of(image, 1)
    assert decay.seen(image.batches[0]) == bytes(100)
    seen = decay.seen(image.batches[1])
    assert [index for index, byte in enumerate(seen) if byte] == [FLIPPED]
    assert seen[FLIPPED].bit_count() == 1
    assert image.batches[1].data == bytes(100)
    assert len(decay_of(image, 1, byte=1_000_003).seen(image.batches[1])) == 100


def test_a_place_that_cannot_be_read_is_named() -> None:
    image = image_of(1, 1)
    with pytest.raises(DamagedData) as caught:
        decay_of(image, 1, byte=UNREADABLE).seen(image.batches[1])
    assert caught.value.offset == 2


def test_another_batch_at_the_same_offset_is_whole() -> None:
    image = image_of(1, 1)
    decay = decay_of(image, 1)
    assert decay.seen(StoredBatch(2, 4, 2, 0, bytes(9))) == bytes(9)


@pytest.mark.parametrize("index", range(6))
def test_a_start_sees_the_newest_batches_only(index: int) -> None:
    image = image_of(*[1] * 6)
    decay = decay_of(image, index)
    if index < 6 - SEEN_AT_START:
        decay.look_at_start(image)
    else:
        with pytest.raises(DamagedData) as caught:
            decay.look_at_start(image)
        assert caught.value.offset == image.batches[index].base


def test_damage_goes_with_the_records_that_it_is_in() -> None:
    image = image_of(*[1] * 6)
    decay = decay_of(image, 0, 2, 5)
    decay.forget_below(4)
    assert sorted(decay.damaged) == [(4, 1), (10, 1)]
    decay.forget_from(10)
    assert sorted(decay.damaged) == [(4, 1)]
    decay.forget_from(4)
    assert decay.is_sound


def cut(decay: Decay, image: LogImage, epoch: int, offset: int | None = None) -> LogImage:
    found = decay.first_of(image.batches)
    at = offset if offset is not None else found.base if found is not None else 0
    looked = decay.look(image, DamagedData("damage", offset=at))
    decay.mark(looked, Epoch(epoch))
    return decay.cut(image, looked)


def test_all_from_the_first_damage_on_is_cut_away_and_what_is_left_is_synced() -> None:
    image = image_of(1, 1, 2, 2)
    decay = decay_of(image, 2, 1)
    left = cut(decay, image, epoch=2)
    assert (left.end, left.synced_end) == (2, 2)
    assert not decay.damaged
    assert decay.impairment == (Impairment(Epoch(2), Offset(8)), "damaged at 2")
    assert not decay.is_sound


def test_records_of_an_earlier_epoch_were_not_acknowledged_in_this_one() -> None:
    image = image_of(1, 1, 2, 2)
    decay = decay_of(image, 2)
    cut(decay, image, epoch=3)
    assert decay.impairment is not None
    assert decay.impairment[0] == Impairment(Epoch(3), Offset(0))


@pytest.mark.parametrize("epoch", [2, 3])
def test_where_a_damaged_end_lay_is_not_known(epoch: int) -> None:
    image = image_of(1, 1, 2, 2)
    decay = decay_of(image, 3)
    cut(decay, image, epoch)
    assert decay.impairment is not None
    assert decay.impairment[0] == Impairment(Epoch(epoch), UNKNOWN_END)


def test_a_second_loss_takes_nothing_back_from_the_first() -> None:
    image = image_of(*[2] * 6)
    decay = decay_of(image, 4)
    left = cut(decay, image, epoch=2)
    decay.damaged[(2, 2)] = FLIPPED
    cut(decay, left, epoch=2)
    assert decay.impairment == (Impairment(Epoch(2), Offset(12)), "damaged at 2")


def test_damage_before_the_log_leaves_an_empty_log() -> None:
    image = image_of(2, 2, start=10)
    decay = Decay()
    left = cut(decay, image, epoch=2, offset=9)
    assert (left.start, left.end, left.batches) == (0, 0, [])
    assert decay.impairment == (Impairment(Epoch(2), Offset(14)), "damage")
    with pytest.raises(StorageError, match="not there"):
        cut(Decay(), image, epoch=2, offset=10)


def test_the_scrub_reads_on_where_it_stopped_and_begins_anew_behind_the_closed_segments() -> None:
    image = image_of(*[1] * 6)
    decay = decay_of(image, 3)
    assert decay.scrub(image, closed_end=12, size_max=150) == 200
    assert decay.scrubbed == 4
    assert decay.scrub(image, closed_end=6, size_max=1_000) == 100
    assert decay.scrubbed == 0
    assert decay.scrub(image, closed_end=7, size_max=1_000) == 300
    with pytest.raises(DamagedData) as caught:
        decay.scrub(image, closed_end=8, size_max=1_000)
    assert (caught.value.offset, decay.scrubbed) == (6, 6)
