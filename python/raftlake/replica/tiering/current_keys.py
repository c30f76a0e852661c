"""Whether this node has applied what the quorum's keys say, as of a moment: when it led a partition, or when a log began there.

A node that starts has the keys of its newest snapshot, and applies the metadata log after that. It may lead a partition before
it is done. Keys from before say that a table ends where it ended then: behind that the local log seems to have a gap. So a
leader first makes a linearizable read of the metadata log. From then on its keys hold all that earlier leaders have finished,
and what the local log was trimmed by. The same holds for a log that begins behind records which its leader no longer has.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.replica.engine import Engine
from raftlake.replica.kv.service import KvService


class CurrentKeys:
    """Made for one epoch of leadership, or for one start of a local log."""

    def __init__(self, engine: Engine, kv: KvService) -> None:
        self._engine = engine
        self._kv = kv
        self._is_asking = False
        #: The keys that this node has applied are not older than this object.
        self.are_here = False

    def ask(self) -> None:
        """Have them brought here, where they are not and nobody has asked. Called again and again."""
        if not self.are_here and not self._is_asking:
            self._is_asking = True
            # All who ask at a time share a round.
            self._kv.read(True, self._on_read)

    def _on_read(self, result: ReadOffsetResult) -> None:
        self._engine.begin_input()
        self._is_asking = False
        self.are_here = result.error is ErrorCode.NONE
