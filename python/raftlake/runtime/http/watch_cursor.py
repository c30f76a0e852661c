"""Where one watcher stands in the history of changes, and the next piece of its stream.

A cursor holds no events: it makes a piece when it is asked for one, looks at a bounded number of changes for that, and tells a
large value a part at a time. So what a slow reader holds is a place, and the row of the value that it is amid of. What was
encoded last is kept for the other watchers of the same changes.
"""

from __future__ import annotations

import base64
import json

from raftlake.kv.history import Compacted, History, Noted
from raftlake.kv.keyspace import ROW_HEAD, value_bytes
from raftlake.kv.machine import StateMachine

#: Changes looked at for one piece: some tenths of a millisecond.
LOOKS_MAX = 500
#: A piece ends behind the event that goes beyond it.
PIECE_BYTES = 32 * 1024
#: A larger value is told in parts of this size; a multiple of three bytes is base64 without an end.
PART_BYTES = 48 * 1024
#: A piece, the event that goes beyond it, and the first part of a value.
PIECE_BYTES_MAX = PIECE_BYTES + 3 * (4 * PART_BYTES // 3)
ENCODINGS_BYTES_MAX = 4 * 1024 * 1024


class Encodings:
    """What was encoded last, for all cursors: by position in the history, and what part of the change it is."""

    def __init__(self, bytes_max: int = ENCODINGS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._history: History | None = None
        self._kept: dict[tuple[int, int], bytes] = {}

    def get(self, history: History, position: int, part: int) -> bytes | None:
        if history is not self._history:
            # A restored state counts its positions anew.
            self._history, self._bytes = history, 0
            self._kept.clear()
        return self._kept.get((position, part))

    def keep(self, position: int, part: int, encoded: bytes) -> bytes:
        self._kept[position, part] = encoded
        self._bytes += len(encoded)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._kept.pop(next(iter(self._kept))))
        return encoded


class Cursor:
    """It has told everything up to `version`. Raises Compacted where that is no longer kept."""

    __slots__ = ("_begin", "_found", "_history", "_machine", "_part", "_position", "_prefix", "version")

    def __init__(self, machine: StateMachine, prefix: str, version: int) -> None:
        self._machine = machine
        self._prefix = prefix
        #: A reader may begin at a version that this node has not applied yet.
        self._begin = self.version = version
        self._history = machine.history
        self._position = self._history.after(version)
        #: A change of the prefix that is not told, or not to its end: whether another of its transaction follows decides how.
        self._found: tuple[int, Noted] | None = None
        #: How much of the value of that change is told; -1 before its beginning.
        self._part = -1

    def mark(self, comment: bytes) -> bytes:
        """Where the watcher stands, for its reader to resume from."""
        return b": %s\nid: %d\n\n" % (comment, max(self.version, 0))

    def take(self, encodings: Encodings) -> bytes | None:
        """The next piece, b"" at the end of what there is, None where the search has to go on. Raises Compacted."""
        pieces: list[bytes] = []
        if self._part >= 0 and not self._tell_part(encodings, pieces):
            return pieces[0]
        # Before the history is asked, so that nothing applied later is skipped over.
        latest = self._machine.applied_offset - 1
        try:
            history = self._history_now()
        except Compacted:
            if pieces:
                # The event comes to its end first.
                return b"".join(pieces)
            raise
        size = sum(map(len, pieces))
        for _ in range(LOOKS_MAX):
            if size >= PIECE_BYTES:
                return b"".join(pieces)
            change = history.at(self._position) if self._position < history.end else None
            found = self._found
            if found is not None and (change is None or change[1] != found[1][1] or change[0].startswith(self._prefix)):
                # A transaction is applied whole: at the end of the history it has come to its end as well.
                is_last = change is None or change[1] != found[1][1]
                if not self._tell(encodings, pieces, is_last=is_last):
                    return b"".join(pieces)
                size += len(pieces[-1])
            if change is None:
                self.version = max(self.version, latest)
                return b"".join(pieces)
            if change[1] > self._begin and change[0].startswith(self._prefix):
                self._found = (self._position, change)
            self._position += 1
        return b"".join(pieces) or None

    def _history_now(self) -> History:
        history = self._machine.history
        if history is not self._history:
            # Of a transaction that was told in part nothing is kept there, so `version` lies below its floor.
            self._position, self._history = history.after(self.version), history
            self._found = None
        elif self._position < history.start:
            history.after(self.version)
            self._position = history.start
        return history

    def _tell(self, encodings: Encodings, pieces: list[bytes], *, is_last: bool) -> bool:
        """Tell what was found; False where it is not told to its end."""
        assert self._found is not None
        position, change = self._found
        if is_last:
            self.version = change[1]
        row = change[2]
        if row is not None and value_bytes(row) > PART_BYTES:
            pieces.append(_head(change, is_last=is_last))
            self._part = 0
            return self._tell_part(encodings, pieces)
        self._found = None
        kept = encodings.get(self._history, position, -1 - is_last)
        pieces.append(kept or encodings.keep(position, -1 - is_last, encode_change(change, is_last=is_last)))
        return True

    def _tell_part(self, encodings: Encodings, pieces: list[bytes]) -> bool:
        """The next part of a large value; whether it was the last one."""
        assert self._found is not None
        position, (_, _, row) = self._found
        assert row is not None
        begin = ROW_HEAD.size + self._part
        part = encodings.get(self._history, position, self._part)
        pieces.append(part or encodings.keep(position, self._part, base64.b64encode(row[begin : begin + PART_BYTES])))
        self._part += PART_BYTES
        if self._part < value_bytes(row):
            return False
        pieces.append(b'"}\n\n')
        self._found, self._part = None, -1
        return True


def encode_change(change: Noted, *, is_last: bool) -> bytes:
    """One event; `value` is base64, as in lists."""
    head, row = _head(change, is_last=is_last), change[2]
    return head + (b"}\n\n" if row is None else base64.b64encode(row[ROW_HEAD.size :]) + b'"}\n\n')


def _head(change: Noted, *, is_last: bool) -> bytes:
    """What stands before the value of an event; before its end where there is no value."""
    key, version, row = change
    kind = b"delete" if row is None else b"put"
    event_id = b"id: %d\n" % version if is_last else b""
    value = b"" if row is None else b',"value":"'
    return b'event: %s\n%sdata: {"key":%s,"version":%d%s' % (kind, event_id, json.dumps(key).encode(), version, value)
