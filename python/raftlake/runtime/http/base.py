"""Requests and responses of the HTTP front, and the errors that are answers.

Owns: strict parsing of paths (percent-decoded UTF-8), queries (known names, once each) and bodies (bounded). Knows no route.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote_to_bytes

from raftlake.errors import for_clients

JSON = b"application/json"
BINARY = b"application/octet-stream"
#: Of a number of 63 bits.
NUMBER_DIGITS_MAX = 19


class HttpError(Exception):
    """A request that is answered with an error; `facts` become fields of the JSON body beside `error`."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers
        self.facts = dict(facts or {})

    def response(self) -> Response:
        return Response(self.status, json_bytes({"error": for_clients(str(self)), **self.facts}), headers=self.headers)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. `offset` is the log offset it reflects (X-Raftlake-Offset); None means what this node has applied."""

    status: int
    body: bytes | bytearray = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    offset: int | None = None
    #: What the body takes of a budget until it is sent.
    hold: Hold | None = None


class BodySource(Protocol):
    """Where a request's body comes from."""

    @property
    def is_gone(self) -> bool:
        """The client has closed the connection."""

    async def piece(self) -> tuple[bytes, bool]:
        """The next piece, and whether more follows. Raises HttpError when the client is gone."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request whose body has not been read yet. `path` is raw, `target` is path and query as they were sent."""

    method: str
    path: bytes
    query_string: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    source: BodySource
    #: Of HTTP.
    version: str = "1.1"

    @property
    def target(self) -> bytes:
        return self.path + b"?" + self.query_string if self.query_string else self.path

    def header(self, name: bytes) -> str | None:
        """The value of a header that may stand once; 400 when it stands twice or is not ASCII."""
        values = [value for key, value in self.headers if key == name]
        if not values:
            return None
        if len(values) > 1 or not values[0].isascii():
            raise HttpError(400, f"header {name.decode()} must stand once, in ASCII")
        return values[0].decode("ascii").strip()

    def query(self, *allowed: str) -> dict[str, str]:
        """The parameters; 400 names one that is unknown, stands twice or is not UTF-8."""
        found: dict[str, str] = {}
        for part in self.query_string.split(b"&"):
            if not part:
                continue
            name_bytes, _, value_bytes = part.partition(b"=")
            name = decode_percent(name_bytes.replace(b"+", b" "), "query parameter")
            if name not in allowed:
                accepted = ", ".join(allowed) if allowed else "none"
                raise HttpError(400, f"unknown query parameter {name!r}; accepted: {accepted}")
            if name in found:
                raise HttpError(400, f"query parameter {name!r} stands twice")
            found[name] = decode_percent(value_bytes.replace(b"+", b" "), f"query parameter {name!r}")
        return found

    def body_bytes(self, bytes_max: int) -> int:
        """How large the body is going to be at most; 413 when it says that it is larger than `bytes_max`."""
        declared = self.header(b"content-length")
        if declared is None or not declared.isdecimal():
            return bytes_max
        if len(declared) > NUMBER_DIGITS_MAX:
            # The parser reads thousands of zeros as a small number.
            raise HttpError(400, f"content-length has {len(declared)} digits")
        if int(declared) > bytes_max:
            raise too_large(bytes_max)
        return int(declared)

    async def body(self, bytes_max: int) -> bytes:
        """The whole body; 413 above `bytes_max`."""
        pieces: list[bytes] = []
        size = 0
        while True:
            piece, has_more = await self.source.piece()
            size += len(piece)
            if size > bytes_max:
                raise too_large(bytes_max)
            if not pieces and not has_more:
                return piece
            pieces.append(piece)
            if not has_more:
                return b"".join(pieces)


class ByteBudget:
    """How many bytes of bodies all requests together may hold (what clients send at once becomes one append), or all answers.
    `refusal` is what the 503 says."""

    def __init__(self, bytes_max: int, refusal: str = "too many bytes of requests are under way; nothing changed") -> None:
        self._bytes_max = bytes_max
        self._refusal = refusal
        self.held = 0

    def take(self, size: int) -> Hold:
        """Hold `size` bytes; 503 when there is no room (one request always has room)."""
        if self.held and self.held + size > self._bytes_max:
            raise unavailable(self._refusal)
        return Hold(self, size)

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold `size` bytes while the block runs; 503 when there is no room."""
        held = self.take(size)
        try:
            yield
        finally:
            held.release()


class Hold:
    """Bytes of a budget."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = 0
        self.settle(size)

    def settle(self, size: int) -> None:
        """It is `size` bytes from now on."""
        self._budget.held += size - self._size
        self._size = size

    def release(self) -> None:
        """Once or more often."""
        self.settle(0)


def unavailable(error: str) -> HttpError:
    """Nothing was proposed: the caller may simply try again."""
    return HttpError(503, error, headers=((b"retry-after", b"1"),))


def too_large(bytes_max: int) -> HttpError:
    # The connection stays open and the rest of the body is dropped: closed at once, the sender would not see this answer.
    return HttpError(413, f"the body is larger than {bytes_max} bytes")


def decode_percent(raw: bytes, what: str) -> str:
    """Percent-decoded UTF-8 text; 400 naming `what` when it is neither."""
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise HttpError(400, f"{what} is not percent-encoded UTF-8") from error


def parse_choice(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of `choices`, the first of them by default."""
    value = query.get(name, choices[0])
    if value not in choices:
        raise HttpError(400, f"{name}={value!r}: accepted are {' and '.join(choices)}")
    return value


def parse_count(query: Mapping[str, str], name: str, *, default: int | None, low: int, high: int) -> int | None:
    """A whole number in [low, high]."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > NUMBER_DIGITS_MAX or not low <= int(text) <= high:
        raise HttpError(400, f"{name}={text!r}: accepted is a whole number from {low} to {high}")
    return int(text)


def json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def head_bytes(response: Response, applied_offset: int) -> bytes:
    """The header lines of a whole answer."""
    offset = applied_offset if response.offset is None else response.offset
    lines = b"content-type: %s\r\ncontent-length: %d\r\nx-raftlake-offset: %d\r\n" % (
        response.content_type,
        len(response.body),
        offset,
    )
    for name, value in response.headers:
        lines += b"%s: %s\r\n" % (name, value)
    return lines
