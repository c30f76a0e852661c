"""Which requests are dear, as their frames tell; and that frames of no sense are judged by nobody but their decoder."""

from __future__ import annotations

import struct

import pytest

from raftlake.runtime.listener.request import AT_ONCE_MAX, DEAR_BYTES, DEAR_FETCH_BYTES, DearFrame, is_dear
from raftlake.wire.api import API_TABLE, ApiKey

NEVER = {ApiKey.PRODUCE, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT}


def frame(key: int, size: int) -> bytearray:
    return bytearray(struct.pack(">hhih", key, 4, 1, -1).ljust(size, b"\0"))


@pytest.mark.parametrize("key", API_TABLE)
def test_what_is_large_is_dear_unless_commits_or_elections_wait_for_it(key: ApiKey) -> None:
    limit = DEAR_FETCH_BYTES if key is ApiKey.FETCH else DEAR_BYTES
    assert not is_dear(frame(key, limit), 0)
    assert is_dear(frame(key, limit + 1), 0) == (key not in NEVER)
    assert is_dear(frame(key, 1 << 18), 0) == (key not in NEVER)


def test_what_is_no_request_is_left_to_the_decoder() -> None:
    for nonsense in (b"", b"\0\3", frame(999, 1 << 18), frame(-1, 1 << 18)):
        assert not is_dear(nonsense, 0) and not is_dear(nonsense, AT_ONCE_MAX)


@pytest.mark.parametrize(("key", "is_fetch"), [(ApiKey.FETCH, True), (ApiKey.METADATA, False)])
def test_a_frame_that_waits_tells_whether_it_is_a_fetch(key: ApiKey, is_fetch: bool) -> None:
    waiting = DearFrame(frame(key, 9000), lambda: True)
    assert (waiting.is_fetch, waiting.is_behind_fetch, waiting.size, waiting.is_dear) == (is_fetch, is_fetch, 9000, True)


@pytest.mark.parametrize("key", API_TABLE)
def test_what_is_behind_many_small_requests_is_dear_whatever_its_size(key: ApiKey) -> None:
    assert not is_dear(frame(key, 10), AT_ONCE_MAX - 1)
    assert is_dear(frame(key, 10), AT_ONCE_MAX) == (key not in NEVER)
