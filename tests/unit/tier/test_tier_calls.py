"""Messages between a node and its tier worker: whole values, an end in the middle, and the wait for the next byte."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import pytest

from contract.tier_contract import LINEAGE, failure, segment
from raftlake.ports.tier import LineageEnd, TierError, TierFailure
from raftlake.raft.types import Epoch
from raftlake.tier.calls import ClaimRequest, TierSettings, receive, send
from raftlake.tier.delta_table import DeltaTier


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


def test_the_store_gives_up_before_the_call_is_given_up() -> None:
    settings = TierSettings(uri="s3://bucket/tier", cluster_id="c", storage_options={"AWS_REGION": "x"})
    assert settings.options() == {"AWS_REGION": "x"}
    timed = replace(settings, request_seconds=120.0)
    assert timed.options() == {"retry_timeout": "30000ms", "timeout": "30000ms", "AWS_REGION": "x"}
    # What is said outright counts.
    own = replace(timed, storage_options={"retry_timeout": "5s"})
    assert own.options() == {"retry_timeout": "5s", "timeout": "30000ms"}


def test_a_store_that_never_answers_is_named_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        settings = TierSettings(uri="s3://bucket/tier", cluster_id="c", storage_options=options | keys, request_seconds=1.0)
        start = time.monotonic()
        answer = DeltaTier(settings).claim(LINEAGE, Epoch(1))
        # Without an end of its own delta-rs tries for minutes.
        assert time.monotonic() - start < 20
    assert failure(answer) is TierFailure.UNKNOWN
    assert isinstance(answer, TierError) and address in answer.reason
