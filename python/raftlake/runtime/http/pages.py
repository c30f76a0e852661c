"""A page of keys: its rows are taken at one moment, and become JSON a little at a time.

Owns how large a page may become. Room for the largest body that its rows can become is asked for before any of it is built,
and what is not needed is given back when the body is there. Rows are shared with the state machine, so taking them copies
nothing. With a delimiter a row without a value is the common beginning of deeper keys. Knows no request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Sequence

from raftlake.kv.keyspace import unpack, value_bytes
from raftlake.kv.machine import StateMachine
from raftlake.runtime.http.base import ByteBudget, Hold, HttpError, Response, json_bytes

#: A page with values ends early rather than hold more than this.
LIST_BYTES_MAX = 8 * 1024 * 1024
#: A page that is over after so many rows, and so many bytes of values, is built at once.
ROWS_AT_ONCE = 100
BYTES_AT_ONCE = 64 * 1024
#: A page with a delimiter ends early rather than hold more names: each costs a search, some microseconds.
NAMES_MAX = 2_000
#: What a row takes beside its key and its value; what one character of a key may become.
_ROW_BYTES = len('{"key":"","version":,"size":,"value":""},') + 20 + 7
_ESCAPED_BYTES, _ESCAPED_PAIR_BYTES = 6, 12


class Page:
    """`is_wanted` says whether the client is still there."""

    def __init__(
        self,
        machine: StateMachine,
        answers: ByteBudget,
        is_wanted: Callable[[], bool],
        *,
        prefix: str,
        after: str | None,
        limit: int,
        with_values: bool,
        delimiter: str | None = None,
    ) -> None:
        self._machine = machine
        self._answers = answers
        self._is_wanted = is_wanted
        self._prefix = prefix
        self._after = after
        self._limit = limit
        self._with_values = with_values
        self._delimiter = delimiter
        self._hold: Hold | None = None

    def small(self) -> Response | None:
        """The page, where that is little work."""
        limit = min(self._limit, ROWS_AT_ONCE)
        names, more = self._names(limit, BYTES_AT_ONCE)
        if more and len(names) < self._limit:
            return None
        body = bytearray(b'{"entries":[')
        body += b",".join(self._row(name, row) for name, row in names if row is not None)
        return self._response(body, names, more)

    def _names(self, limit: int, bytes_max: int) -> tuple[Sequence[tuple[str, bytes | None]], bool]:
        of_values = bytes_max if self._with_values else None
        if self._delimiter is None:
            return self._machine.rows(self._prefix, self._after, limit, of_values)
        return self._machine.names(self._prefix, self._after, min(limit, NAMES_MAX), self._delimiter, of_values)

    def pieces(self) -> Generator[None, None, Response]:
        """The page, whatever it takes. Raises HttpError(503) where there is no room for it."""
        if not self._is_wanted():
            raise HttpError(503, "the client has gone")
        names, more = self._names(self._limit, LIST_BYTES_MAX)
        offset = self._machine.applied_offset
        yield
        self._hold = self._answers.take(sum(self._bytes_max(name, row) for name, row in names))
        yield
        body = bytearray(b'{"entries":[')
        count = 0
        for index, (name, row) in enumerate(names):
            if row is not None:
                if count:
                    body += b","
                body += self._row(name, row)
                count += 1
            if index % 16 == 0 or (row is not None and value_bytes(row) > BYTES_AT_ONCE):
                yield
        response = self._response(body, names, more, offset)
        self._hold.settle(len(body))
        return response

    def drop(self) -> None:
        """It is not sent."""
        if self._hold is not None:
            self._hold.release()

    def _response(
        self, body: bytearray, names: Sequence[tuple[str, bytes | None]], more: bool, offset: int | None = None
    ) -> Response:
        body += b"]"
        if self._delimiter is not None:
            body += b',"prefixes":%s' % json_bytes([name for name, row in names if row is None])
        body += b',"more":true}' if more else b',"more":false}'
        offset = self._machine.applied_offset if offset is None else offset
        return Response(200, body, offset=offset, hold=self._hold)

    def _bytes_max(self, name: str, row: bytes | None) -> int:
        escaped = _ESCAPED_BYTES if name.isascii() else _ESCAPED_PAIR_BYTES
        value = 4 * -(-value_bytes(row) // 3) if self._with_values and row is not None else 0
        return _ROW_BYTES + escaped * len(name) + value

    def _row(self, key: str, row: bytes) -> bytes:
        entry = unpack(row)
        head = b'{"key":%s,"version":%d,"size":%d' % (json.dumps(key).encode(), entry.version, len(entry.value))
        return b'%s,"value":"%s"}' % (head, base64.b64encode(entry.value)) if self._with_values else head + b"}"
