"""A page of keys: its rows are taken at one moment, and become JSON a little at a time.

Owns how large a page may become. Room for the largest body that its rows can become is asked for before any of it is built,
and what is not needed is given back when the body is there. Rows are shared with the state machine, so taking them copies
nothing. Knows no request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator

from raftlake.kv.keyspace import Row, unpack, value_bytes
from raftlake.kv.machine import StateMachine
from raftlake.runtime.http.base import ByteBudget, Hold, HttpError, Response

#: A page with values ends early rather than hold more than this.
LIST_BYTES_MAX = 8 * 1024 * 1024
#: A page that is over after so many rows, and so many bytes of values, is built at once.
ROWS_AT_ONCE = 100
BYTES_AT_ONCE = 64 * 1024
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
    ) -> None:
        self._machine = machine
        self._answers = answers
        self._is_wanted = is_wanted
        self._prefix = prefix
        self._after = after
        self._limit = limit
        self._with_values = with_values
        self._hold: Hold | None = None

    def small(self) -> Response | None:
        """The page, where that is little work."""
        limit = min(self._limit, ROWS_AT_ONCE)
        rows, more = self._machine.rows(self._prefix, self._after, limit, BYTES_AT_ONCE if self._with_values else None)
        if more and len(rows) < self._limit:
            return None
        body = bytearray(b'{"entries":[')
        body += b",".join(self._row(row) for row in rows)
        return self._response(body, more)

    def pieces(self) -> Generator[None, None, Response]:
        """The page, whatever it takes. Raises HttpError(503) where there is no room for it."""
        if not self._is_wanted():
            raise HttpError(503, "the client has gone")
        rows, more = self._machine.rows(self._prefix, self._after, self._limit, LIST_BYTES_MAX if self._with_values else None)
        offset = self._machine.applied_offset
        yield
        self._hold = self._answers.take(sum(map(self._bytes_max, rows)))
        yield
        body = bytearray(b'{"entries":[')
        for index, row in enumerate(rows):
            if index:
                body += b","
            body += self._row(row)
            if index % 16 == 0 or value_bytes(row[1]) > BYTES_AT_ONCE:
                yield
        response = self._response(body, more, offset)
        self._hold.settle(len(body))
        return response

    def drop(self) -> None:
        """It is not sent."""
        if self._hold is not None:
            self._hold.release()

    def _response(self, body: bytearray, more: bool, offset: int | None = None) -> Response:
        body += b'],"more":true}' if more else b'],"more":false}'
        offset = self._machine.applied_offset if offset is None else offset
        return Response(200, body, offset=offset, hold=self._hold)

    def _bytes_max(self, row: Row) -> int:
        key, packed = row
        escaped = _ESCAPED_BYTES if key.isascii() else _ESCAPED_PAIR_BYTES
        value = 4 * -(-value_bytes(packed) // 3) if self._with_values else 0
        return _ROW_BYTES + escaped * len(key) + value

    def _row(self, row: Row) -> bytes:
        key, entry = row[0], unpack(row[1])
        head = b'{"key":%s,"version":%d,"size":%d' % (json.dumps(key).encode(), entry.version, len(entry.value))
        return b'%s,"value":"%s"}' % (head, base64.b64encode(entry.value)) if self._with_values else head + b"}"
