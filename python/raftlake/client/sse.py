"""Server-sent events (WHATWG HTML §9.2) out of chunks of bytes, cut anywhere. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.errors import WireError

#: A line longer than this is no event of ours: a value of 1 MiB in base64 is well below it.
_LINE_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    name: str
    data: str


class ServerSentEvents:
    def __init__(self) -> None:
        self._rest = b""
        #: Of the last event that is complete, also of one without data: where a reader that reconnects resumes.
        self.last_id: str | None = None
        #: The last id seen. It counts when its event is complete: of an event that was cut nothing was handed out.
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that are complete with `chunk`."""
        lines = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _LINE_BYTES_MAX:
            raise WireError(f"a line of an event stream is longer than {_LINE_BYTES_MAX} bytes")
        events: list[ServerSentEvent] = []
        for line in lines:
            if line:
                self._on_field(line.decode("utf-8", errors="replace"))
                continue
            self.last_id = self._id
            if self._data:
                events.append(ServerSentEvent(self._name or "message", "\n".join(self._data)))
                self._name, self._data = "", []
            else:
                self._name = ""
        return events

    def _on_field(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value
