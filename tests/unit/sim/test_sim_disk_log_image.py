"""A version of a simulated log: what a cut keeps, and bytes that no file log would keep."""

from __future__ import annotations

import pytest

from contract.batches import make_batch
from raftlake.errors import InvariantViolation
from raftlake.raft.types import Epoch, Offset
from raftlake.sim.disk.log_image import LogImage, StoredBatch, check_batch_bytes


def test_a_cut_keeps_the_epochs_of_what_is_left() -> None:
    batches = [StoredBatch(offset, offset + 1, offset + 1, 0, b"") for offset in range(4)]
    epochs = [(Epoch(offset + 1), Offset(offset)) for offset in range(4)]
    image = LogImage(batches=batches, ends=[1, 2, 3, 4], epochs=epochs, synced_end=3)
    cut = image.cut(2)
    assert (cut.end, cut.batches, cut.epochs, cut.synced_end, cut.inherited_end) == (2, batches[:2], epochs[:2], 2, 2)
    assert LogImage(start=7).end == 7


def test_bytes_and_span_must_agree() -> None:
    data, span = make_batch(3)
    check_batch_bytes(span, data)
    for damaged in (data[:-1], data[:-1] + b"x", make_batch(4)[0]):
        with pytest.raises(InvariantViolation):
            check_batch_bytes(span, damaged)
