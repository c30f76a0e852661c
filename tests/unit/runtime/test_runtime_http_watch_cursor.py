"""Cursors of watchers: every change once and in order, a bounded look at a time, large values in parts, encodings shared."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.history import Compacted
from raftlake.kv.machine import StateMachine
from raftlake.runtime.http import watch_cursor
from raftlake.runtime.http.watch_cursor import LOOKS_MAX, PART_BYTES, PIECE_BYTES_MAX, Cursor, Encodings


def apply(machine: StateMachine, *ops: Any) -> int:
    return machine.apply(max(machine.applied_offset, 1), encode(Txn((), ops))).offset


def pieces_of(cursor: Cursor, encodings: Encodings | None = None) -> list[bytes]:
    """All that there is, piece by piece."""
    encodings = encodings or Encodings()
    pieces = []
    while (piece := cursor.take(encodings)) != b"":
        if piece is not None:
            pieces.append(piece)
    return pieces


def events_of(stream: bytes) -> list[tuple[str, int, bytes | None, bool]]:
    """Key, version, value, and whether the event carries the id."""
    events = []
    for block in stream.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        data = json.loads(fields["data"])
        assert ("value" in data) == (fields["event"] == "put") and fields.get("id", str(data["version"])) == str(
            data["version"]
        )
        value = base64.b64decode(data["value"]) if "value" in data else None
        events.append((data["key"], data["version"], value, "id" in fields))
    return events


def expected(machine: StateMachine, prefix: str, version: int) -> list[tuple[str, int, bytes | None, bool]]:
    changes = machine.changes_since(prefix, version, 1 << 30)
    last = {change.version: change for change in changes}
    return [(change.key, change.version, change.value, last[change.version] is change) for change in changes]


SIZES = st.sampled_from(
    [0, 1, 2, 3, 100, 20_000, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 3 * PART_BYTES + 2]
)
KEYS = st.lists(st.sampled_from(["a", "b", "c", "aa", "é\n"]), min_size=1, max_size=4, unique=True)


@given(
    st.lists(st.tuples(KEYS, SIZES, st.booleans()), max_size=12),
    st.sampled_from(["", "a", "aa", "x"]),
    st.integers(0, 9),
    st.data(),
)
def test_a_cursor_tells_what_the_history_holds(txns: list[Any], prefix: str, version: int, data: Any) -> None:
    """However what happens and what is asked for follow one another."""
    machine = StateMachine()
    cursor = Cursor(machine, prefix, version)
    encodings, told = Encodings(), b""
    for keys, size, is_delete in txns:
        apply(machine, *(Delete(key) if is_delete else Put(key, key.encode()[:1] * size) for key in keys))
        for _ in range(data.draw(st.integers(0, 3))):
            piece = cursor.take(encodings)
            assert piece is None or len(piece) <= PIECE_BYTES_MAX
            told += piece or b""
    told += b"".join(pieces_of(cursor, encodings))
    assert events_of(told) == expected(machine, prefix, version)
    assert cursor.version == max(version, machine.applied_offset - 1)


def test_one_look_sees_a_bounded_number_of_changes() -> None:
    """300 watches of a prefix that nobody has held the loop for 5.7 s."""
    machine = StateMachine()
    for start in range(0, 4 * LOOKS_MAX, 1000):
        apply(machine, *(Put(f"s/{start + number}", b"") for number in range(1000)))
    cursor = Cursor(machine, "z", 0)
    takes = [cursor.take(Encodings()) for _ in range(5)]
    assert takes == [None, None, None, None, b""]
    apply(machine, Put("z", b"found"))
    assert len(pieces_of(cursor)) == 1


def test_watchers_of_the_same_changes_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, encoded = StateMachine(), list[int]()
    apply(machine, Put("small", b"s"), Put("large", bytes(3 * PART_BYTES)))

    plain = base64.b64encode

    def b64encode(value: bytes) -> bytes:
        encoded.append(len(value))
        return plain(value)

    monkeypatch.setattr(watch_cursor.base64, "b64encode", b64encode)
    encodings = Encodings()
    cursors = [Cursor(machine, "", 0) for _ in range(100)]
    streams = {b"".join(pieces_of(cursor, encodings)) for cursor in cursors}
    assert len(streams) == 1 and sorted(encoded) == [1, PART_BYTES, PART_BYTES, PART_BYTES]
    # The same change is another event where it ends its transaction.
    assert events_of(b"".join(pieces_of(Cursor(machine, "small", 0), encodings))) == [("small", 1, b"s", True)]


def test_what_is_kept_encoded_has_an_end_and_ends_with_its_history() -> None:
    machine = StateMachine()
    encodings = Encodings(1000)
    for number in range(100):
        apply(machine, Put(f"k{number}", bytes(100)))
    pieces_of(Cursor(machine, "", 0), encodings)
    assert 0 < sum(map(len, encodings._kept.values())) == encodings._bytes <= 1000
    encodings = Encodings()
    pieces_of(Cursor(machine, "", 0), encodings)
    other = StateMachine()
    apply(other, Put("other", b"v"))
    restored = Cursor(other, "", 0)
    assert events_of(b"".join(pieces_of(restored, encodings))) == [("other", 1, b"v", True)]


def test_a_value_that_is_told_in_part_is_told_to_its_end_whatever_happens_to_it() -> None:
    machine = StateMachine(history_changes_max=2)
    value = bytes(range(256)) * (PART_BYTES // 64)
    apply(machine, Put("k", value), Put("l", b""))
    cursor = Cursor(machine, "", 0)
    encodings = Encodings()
    first = cursor.take(encodings)
    assert first and not first.endswith(b"\n\n")
    for _ in range(3):
        apply(machine, Put("k", b"new"))
    told = first
    while not told.endswith(b"\n\n"):
        told += cursor.take(encodings) or b""
    assert events_of(told) == [("k", 1, value, False)]
    with pytest.raises(Compacted) as gone:
        cursor.take(encodings)
    assert gone.value.version == 0, "the transaction is not told whole, so the reader resumes before it"


def test_the_reader_of_a_restored_state_is_told_that_changes_are_gone_unless_it_stands_there() -> None:
    machine, source = StateMachine(), StateMachine()
    apply(machine, Put("k", b"v"))
    behind, ahead = Cursor(machine, "", 0), Cursor(machine, "", 7)
    for _ in range(5):
        apply(source, Put("k", b"v"))
    machine.restore(source.snapshot())
    with pytest.raises(Compacted):
        behind.take(Encodings())
    assert ahead.take(Encodings()) == b""
    for _ in range(4):
        apply(machine, Put("k", b"v"))
    assert [event[1] for event in events_of(b"".join(pieces_of(ahead)))] == [8, 9]


def test_changes_that_were_dropped_unseen_are_missed_and_those_that_were_seen_are_not() -> None:
    machine = StateMachine(history_changes_max=3)
    cursors = [Cursor(machine, "k", 0), Cursor(machine, "k", 0)]
    for _ in range(3):
        apply(machine, Put("other", b"v"))
        cursors[0].take(Encodings())
    for number in range(3):
        apply(machine, Put(f"k{number}", b""))
    assert [event[0] for event in events_of(b"".join(pieces_of(cursors[0])))] == ["k0", "k1", "k2"]
    with pytest.raises(Compacted):
        cursors[1].take(Encodings())
