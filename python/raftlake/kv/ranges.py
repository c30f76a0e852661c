"""What a command says of all keys with a prefix, judged against the key space before anything of the command happens.

Owns the bounds of the work: all compares of prefixes in one command look at COMPARE_RANGE_KEYS_MAX keys at most, all deletions
of prefixes delete DELETE_RANGE_KEYS_MAX keys at most. A command that needs more does not succeed, on no node. Changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raftlake.kv.commands import COMPARE_RANGE_KEYS_MAX, DELETE_RANGE_KEYS_MAX, Txn
from raftlake.kv.keyspace import KeySpace


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Of a command with ranges. `newest` names every prefix that was compared in vain, with the highest version that was found
    below it. `compares_too_large` and `deletes_too_large` name the prefixes with which the command had more keys than the
    bounds allow. `deleted` is how many keys were deleted below prefixes, 0 where the command did not succeed."""

    newest: tuple[tuple[str, int], ...] = ()
    compares_too_large: tuple[str, ...] = ()
    deletes_too_large: tuple[str, ...] = ()
    deleted: int = 0

    @property
    def holds(self) -> bool:
        """Nothing of the ranges keeps the command from happening."""
        return not (self.newest or self.compares_too_large or self.deletes_too_large)


def judge(space: KeySpace, txn: Txn) -> tuple[RangeResult, int]:
    """What the ranges of a command find, with the keys that are going to be deleted as deleted; and how many keys all of this
    is about, which says what the command costs."""
    newest: list[tuple[str, int]] = []
    compares_too_large: list[str] = []
    deletes_too_large: list[str] = []
    looked_at = deleted = 0
    for compare in txn.prefix_compares:
        found, looks, has_more = space.newest_below(compare.prefix, COMPARE_RANGE_KEYS_MAX - looked_at)
        looked_at += looks
        if found > compare.newest:
            newest.append((compare.prefix, found))
        elif has_more:
            compares_too_large.append(compare.prefix)
    for prefix in txn.deleted_prefixes:
        count = space.count_below(prefix, DELETE_RANGE_KEYS_MAX - deleted)
        if deleted + count > DELETE_RANGE_KEYS_MAX:
            deletes_too_large.append(prefix)
        else:
            deleted += count
    result = RangeResult(
        newest=tuple(newest),
        compares_too_large=tuple(compares_too_large),
        deletes_too_large=tuple(deletes_too_large),
        deleted=deleted,
    )
    return (result if result.holds else replace(result, deleted=0)), looked_at + deleted
