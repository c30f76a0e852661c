"""Counts the reserved entries that mean nothing (`reserved.Refused`) and the puts that took no effect, and logs each key once.

Looks at every change below `/raftlake/`, and at all entries of a state that came from a snapshot, some at a time. Hears of puts
over what stays in force (`reserved_rules`) as they are applied: no entry shows those. Changes nothing: that an entry is ignored
is the business of those who read it, by the same decoders.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from raftlake.kv.history import Compacted
from raftlake.kv.keys import RESERVED_PREFIX
from raftlake.kv.strict_json import Refused
from raftlake.replica.engine import Engine
from raftlake.replica.kv.state import KvState
from raftlake.replica.reserved import decode
from raftlake.replica.reserved_rules import PARTITIONS_MAX

logger = logging.getLogger("raftlake.reserved")

#: Keys that are remembered as told; beyond it the one told longest ago may be told again.
TOLD_MAX = 1024
#: Entries of a restored state that are looked at together, and the time for everything else in between.
LISTED_AT_ONCE = 256
PAUSE_MS = 1
KEY_CHARACTERS_TOLD = 100


class RefusedKeys:
    """`count` is the number of entries and puts that were ignored since the start."""

    def __init__(self, engine: Engine, state: KvState) -> None:
        self._engine = engine
        self._state = state
        self.count = 0
        self._seen_version = -1
        #: The keys that were told, each with the version at which it was counted last.
        self._told: OrderedDict[str, int] = OrderedDict()
        #: A listing is under way, and how far it has come.
        self._listed: str | None = None

    def on_ignored(self, key: str, reason: str, version: int) -> None:
        """A put was committed at `version` that left the key's value as it was."""
        self._note(key, version, "what was put under the reserved key %a takes no effect: %a", reason)

    def on_applied(self, applied_offset: int) -> None:
        try:
            while changes := self._state.machine.changes_since(RESERVED_PREFIX, self._seen_version):
                for change in changes:
                    self._seen_version = change.version
                    if change.value is not None:
                        self._look(change.key, change.value, change.version)
        except Compacted:
            is_new = self._listed is None
            self._listed = ""
            if is_new:
                self._list()
        self._seen_version = max(self._seen_version, applied_offset - 1)

    def _list(self) -> None:
        entries, has_more = self._state.machine.list(RESERVED_PREFIX, self._listed or None, LISTED_AT_ONCE)
        for key, entry in entries:
            self._listed = key
            self._look(key, entry.value, entry.version)
        if has_more:
            self._engine.timers.schedule(self._engine.now_ms + PAUSE_MS, self._list)
        else:
            self._listed = None

    def _look(self, key: str, value: bytes, version: int) -> None:
        found = decode(key, value, version, PARTITIONS_MAX)
        if isinstance(found, Refused):
            self._note(key, version, "the reserved key %a means nothing and is ignored: %a", found.reason)

    def _note(self, key: str, version: int, message: str, reason: str) -> None:
        if self._told.get(key, -1) >= version:
            return
        self.count += 1
        if key not in self._told:
            logger.warning(message, key[:KEY_CHARACTERS_TOLD], reason)
        self._told[key] = version
        self._told.move_to_end(key)
        if len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)
