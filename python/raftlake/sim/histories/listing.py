"""Lists of keys that clients were given, judged by the changes of all keys in the log.

Knows neither the state machine nor how it keeps its keys in order: here the keys of a position are gathered and sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raftlake.kv.machine import Entry
from raftlake.sim.invariants.base import Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class KvList:
    """A question and its answer: at most `limit` keys that begin with `prefix` and follow `after`."""

    prefix: str
    after: str | None
    limit: int
    found: tuple[tuple[str, Entry], ...]
    has_more: bool
    #: The position in the metadata log (exclusive) whose state was listed.
    position: int

    def covers(self, key: str) -> bool:
        """Whether the answer says of the key what it is, or that it does not exist."""
        is_asked = key.startswith(self.prefix) and (self.after is None or key > self.after)
        is_told = not self.has_more or (bool(self.found) and key <= self.found[-1][0])
        return is_asked and is_told


def check_lists(lists: Iterable[KvList], histories: Mapping[str, Sequence[tuple[int, Entry | None]]]) -> None:
    """Raise Violation unless each list is what the log gives at its position. `histories`: each key's changes with offsets."""
    changes = [(offset, key, entry) for key, history in histories.items() for offset, entry in history]
    changes.sort(key=lambda change: change[0])
    state: dict[str, Entry] = {}
    upto = 0
    for listed in sorted(lists, key=lambda each: each.position):
        while upto < len(changes) and changes[upto][0] < listed.position:
            _, key, entry = changes[upto]
            upto += 1
            if entry is None:
                state.pop(key, None)
            else:
                state[key] = entry
        keys = sorted(key for key in state if key.startswith(listed.prefix) and (listed.after is None or key > listed.after))
        expected = tuple((key, state[key]) for key in keys[: listed.limit])
        if listed.found != expected or listed.has_more != (len(keys) > listed.limit):
            detail = f"{listed}, but a replay gives {expected} of {len(keys)} keys"
            raise Violation("a list holds the keys of its position, in order", detail)
