"""Markers that another node, as the coordinator, asks this one to write: one answer for all of a request.

An answer comes after `ANSWER_MS` at the latest, since other answers wait behind it. What is not known by then is asked for
again, and is found to be done: no marker is written where it has nothing to end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import MarkersReply, MarkersRpc, PeerReply
from raftlake.replica.engine import Engine
from raftlake.replica.transactions.delivery import MarkerWriter

#: Well within the time that nodes wait for answers (quorum.request.timeout.ms).
ANSWER_MS = 500


class MarkerDesk:
    def __init__(self, engine: Engine, markers: MarkerWriter) -> None:
        self._engine = engine
        self._markers = markers

    def receive(self, rpc: MarkersRpc, reply: Callable[[PeerReply], None]) -> None:
        """`reply` is called once, now or later."""
        _Asked(self._engine, self._markers, rpc, reply).begin()


class _Asked:
    """One request."""

    def __init__(self, engine: Engine, markers: MarkerWriter, rpc: MarkersRpc, reply: Callable[[PeerReply], None]) -> None:
        self._engine = engine
        self._markers = markers
        self._rpc = rpc
        self._reply = reply
        self._errors = [ErrorCode.REQUEST_TIMED_OUT] * len(rpc.markers)
        self._missing = len(rpc.markers)
        self._is_over = False

    def begin(self) -> None:
        if not self._missing:
            self._end()
            return
        timer = self._engine.timers.schedule(self._engine.now_ms + ANSWER_MS, self._end)
        for place, asked in enumerate(self._rpc.markers):
            self._markers.write(asked.group, asked.marker, asked.decided_at, partial(self._on_written, place))
        if self._is_over:
            timer.cancel()

    def _on_written(self, place: int, error: ErrorCode) -> None:
        self._errors[place] = error
        self._missing -= 1
        if self._missing == 0:
            self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._reply(MarkersReply(error=ErrorCode.NONE, errors=tuple(self._errors)))
