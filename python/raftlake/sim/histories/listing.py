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
    """A question and its answer: at most `limit` keys that begin with `prefix` and follow `after`. With a delimiter: at most so
    many names, of which `prefixes` are those that deeper keys begin with."""

    prefix: str
    after: str | None
    limit: int
    found: tuple[tuple[str, Entry], ...]
    has_more: bool
    #: The position in the metadata log (exclusive) whose state was listed.
    position: int
    delimiter: str | None = None
    prefixes: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        """Whether the answer says of the key, or of a name, what it is, or that it does not exist."""
        is_asked = key.startswith(self.prefix) and (self.after is None or key > self.after)
        last = max([*self.prefixes[-1:], *(found for found, _ in self.found[-1:])], default="")
        return is_asked and (not self.has_more or key <= last)

    def name_of(self, key: str) -> str:
        """As what a key that begins with the prefix is told."""
        cut = -1 if self.delimiter is None else key.find(self.delimiter, len(self.prefix))
        return key if cut < 0 else key[: cut + 1]


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
        below = (key for key in state if key.startswith(listed.prefix))
        names = sorted({name for name in map(listed.name_of, below) if listed.after is None or name > listed.after})
        # A key that ends with the delimiter is told as a prefix, too.
        told = names[: listed.limit]
        prefixes = tuple(
            name for name in told if listed.delimiter is not None and name.endswith(listed.delimiter, len(listed.prefix))
        )
        expected = tuple((name, state[name]) for name in told if name not in prefixes)
        is_same = listed.found == expected and listed.prefixes == prefixes
        if not is_same or listed.has_more != (len(names) > listed.limit):
            detail = f"{listed}, but a replay gives {expected} and {prefixes} of {len(names)} names"
            raise Violation("a list holds the keys of its position, in order", detail)
