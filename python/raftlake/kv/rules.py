"""What some keys may hold: a judge of puts that the state machine asks as it applies, the same on every node.

Knows no key by itself; who owns the meaning of keys brings the judge along. Invariant: what a judge says follows from the
keys and from the command alone, so all nodes say it of the same offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from raftlake.kv.commands import EndTxn
from raftlake.kv.keyspace import Entry


@dataclass(frozen=True, slots=True)
class Decided:
    """What the end of a transaction changes: a reserved key and its next value. None where it is decided so already."""

    change: tuple[str, bytes] | None = None


class Rules(Protocol):
    """One judge belongs to one key space, and is told all that happens to reserved keys there."""

    def take(self, key: str, value: bytes, version: int, standing: Entry | None) -> str | None:
        """A put of a reserved key over what stands there: None, and it is done; or why the value stays as it is."""
        ...

    def drop(self, key: str) -> None:
        """A reserved key was deleted."""
        ...

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        """A reserved key came from a snapshot. Returns the key whose value is to be emptied, if there is one."""
        ...

    def judge_end(self, ending: EndTxn) -> Decided | str:
        """What the end of a producer's transaction changes, or why it cannot end so. Changes nothing itself: the change is put
        like any other."""
        ...


class NoRules:
    """Any value may stand under any key."""

    def take(self, key: str, value: bytes, version: int, standing: Entry | None) -> str | None:
        del key, value, version, standing
        return None

    def drop(self, key: str) -> None:
        del key

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        del key, entry, version_of
        return None

    def judge_end(self, ending: EndTxn) -> Decided | str:
        return f"no transactional id has the producer id {ending.producer_id}"
