"""Messages between a node and its tier worker: whole values, an end in the middle, and the wait for the next byte."""

from __future__ import annotations

import socket
import threading

import pytest

from contract.tier_contract import LINEAGE, segment
from raftlake.ports.tier import LineageEnd, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import ClaimRequest, TierSettings, receive, send


@pytest.mark.parametrize(
    "value",
    [
        TierSettings(uri="s3://b/t", cluster_id="c", storage_options={"AWS_REGION": "x"}),
        segment(0, "a"),
        ClaimRequest(LINEAGE, Epoch(3)),
        LineageEnd(None),
        TierError(TierFailure.UNKNOWN, "why"),
        bytes(3_000_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back(value: object) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=send, args=(ours, value))
        sender.start()
        waits: list[None] = []
        assert receive(theirs, lambda: waits.append(None)) == value
        sender.join()
        assert waits


@pytest.mark.parametrize("length", [0, 4, 8, 9])
def test_an_end_in_the_middle_is_told(length: int) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall((b"\0" * 7 + b"\x05abcd")[:length])
        with pytest.raises(EOFError, match="closed after"):
            receive(theirs)
