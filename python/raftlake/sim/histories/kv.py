"""Histories of the key-value space: gets and conditional changes of keys and of ranges of keys, checked for linearizability.

Owns the sequential model (a register per key with a version, changes guarded by compares, and all keys with a prefix as a
range), and the division of a history into parts that share no key. Owns what makes unknown changes cheap, too: one whose value
was read has happened, and one that nothing in the history could have seen does not matter.

A version is the position of a change in the one log, so versions ascend in every order that is allowed, whatever the keys. The
version of an unknown change is not known; it is bound, once and for good, by the first operation that shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from raftlake.kv.commands import ABSENT, ANY
from raftlake.sim.histories.linearizability import CONFIGURATIONS_MAX, Operation, Outcome, Verdict, search

#: No bound from above.
_OPEN = 1 << 63


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that a get showed; `version` is None where only the value is known."""

    value: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Get:
    """A get of one key, or of several at one moment. None: the key did not exist.

    `position` is the log offset (exclusive) that the answer reflects, where the answer names it. `below` says of prefixes
    whether there was a key that begins with them.
    """

    found: Mapping[str, Seen | None]
    position: int | None = None
    below: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """All compares held. The keys have this version now (None: the answer did not say it)."""

    version: int | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing changed: `current` names each compare that failed, with the version that its key has (0: none); `newest` each
    range that did not hold, with its highest version."""

    current: Mapping[str, int]
    position: int | None = None
    newest: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A put, delete or transaction: compares that must all hold, then new values (None deletes). `result` is None as long as
    nothing is known of it. `newest`: no key with the prefix has a version above it. `deleted`: prefixes whose keys go."""

    values: Mapping[str, bytes | None]
    compares: Mapping[str, int] = field(default_factory=dict)
    result: Changed | Conflict | None = None
    newest: Mapping[str, int] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()


KvAction = Get | Change
KvOperation = Operation[KvAction]
#: A value and its version; negative versions stand for ones that nothing has shown yet.
Slot = tuple[bytes, int] | None


@dataclass(frozen=True, slots=True)
class KvState:
    """`last` is the highest version that is known of a change so far. `unbound` holds, in the order of their changes, the
    versions that are still unknown as (stand-in, above which, below which)."""

    slots: tuple[Slot, ...]
    last: int = 0
    unbound: tuple[tuple[int, int, int], ...] = ()


class KeyValueModel:
    """The sequential key-value space over `keys`: all that begin with a prefix of any operation are among them."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._index = {key: index for index, key in enumerate(keys)}
        self._ranges: dict[str, tuple[int, ...]] = {}

    def _range(self, prefix: str) -> tuple[int, ...]:
        """The slots of the keys that begin with it."""
        found = self._ranges.get(prefix)
        if found is None:
            found = tuple(index for key, index in self._index.items() if key.startswith(prefix))
            self._ranges[prefix] = found
        return found

    def initial(self) -> KvState:
        return KvState((None,) * len(self._index))

    def rank(self, action: KvAction) -> int | None:
        return action.result.version if isinstance(action, Change) and isinstance(action.result, Changed) else None

    def must_be_seen(self, optional: KvAction, following: KvAction) -> bool:
        """With one key: a change that the next one overwrites unseen might as well never have happened. With several keys the
        order of versions ties operations together that share no key, so nothing is dropped."""
        is_blind = isinstance(following, Change) and not following.compares and not following.newest
        return len(self._index) > 1 or not is_blind

    def step(self, state: KvState, action: KvAction, number: int) -> KvState | None:
        match action:
            case Get(found=found, below=below):
                return self._get(state, found) if self._are_below(state, below) else None
            case Change(result=Conflict() as conflict):
                return self._conflict(state, action, conflict)
            case Change(result=Changed(version=version)):
                return self._change(state, action, version, number)
            case Change():
                return self._change(state, action, None, number)
            case _:
                assert_never(action)

    def _get(self, state: KvState, found: Mapping[str, Seen | None]) -> KvState | None:
        after: KvState | None = state
        for key, seen in found.items():
            slot = state.slots[self._index[key]]
            if (slot is None) != (seen is None):
                return None
            if seen is not None and slot is not None:
                if slot[0] != seen.value:
                    return None
                if seen.version is not None and after is not None:
                    after = self._require(after, key, seen.version)
        return after

    def _are_below(self, state: KvState, below: Mapping[str, bool]) -> bool:
        return all(
            any(state.slots[index] is not None for index in self._range(prefix)) == exists for prefix, exists in below.items()
        )

    def _conflict(self, state: KvState, change: Change, conflict: Conflict) -> KvState | None:
        current = conflict.current
        after: KvState | None = state
        for prefix, newest in change.newest.items():
            if after is None:
                return None
            highest = conflict.newest.get(prefix)
            if highest is None:
                after = self._bound(after, prefix, newest)
            else:
                after = self._require_highest(after, prefix, highest) if highest > newest else None
        for key, version in change.compares.items():
            if after is None:
                return None
            shown = current.get(key)
            if shown is None:
                after = self._require(after, key, version)
            elif shown == version or (version == ANY and shown != ABSENT):
                return None
            else:
                after = self._require(after, key, shown)
        return after if current or conflict.newest else None

    def _bound(self, state: KvState, prefix: str, newest: int) -> KvState | None:
        """The state in which no key with the prefix is newer, None when one is for sure."""
        after: KvState | None = state
        for index in self._range(prefix):
            slot = state.slots[index]
            if slot is not None and slot[1] > newest:
                return None
            if slot is not None and slot[1] < 0 and after is not None:
                after = _below(after, slot[1], newest + 1)
        return after

    def _require_highest(self, state: KvState, prefix: str, highest: int) -> KvState | None:
        """The state in which this is the highest version of the keys with the prefix, None when it cannot be."""
        stand_ins = {entry[0]: entry[1] for entry in state.unbound}
        versions = [slot[1] for index in self._range(prefix) if (slot := state.slots[index]) is not None]
        known = max((version for version in versions if version > 0), default=0)
        # Those that are still unknown stand in the order of their changes; one is above what was known when it came.
        unknown = [stand_in for stand_in in stand_ins if stand_in in versions]
        if unknown and stand_ins[unknown[-1]] >= known:
            return _bind(state, unknown[-1], highest)
        return state if known == highest else None

    def _change(self, state: KvState, change: Change, version: int | None, number: int) -> KvState | None:
        after: KvState | None = state
        for key, expected in change.compares.items():
            if after is None:
                return None
            after = self._require(after, key, expected)
        for prefix, newest in change.newest.items():
            if after is None:
                return None
            after = self._bound(after, prefix, newest)
        if after is None or (version is not None and version <= after.last):
            return None
        last, unbound = after.last, after.unbound
        stand_in = -1 - number
        if version is None:
            unbound += ((stand_in, last, _OPEN),)
        else:
            if any(low >= version for _, low, _ in unbound):
                return None
            unbound = tuple((other, low, min(high, version)) for other, low, high in unbound)
            last = version
        slots = list(after.slots)
        for prefix in change.deleted:
            for index in self._range(prefix):
                slots[index] = None
        for key, value in change.values.items():
            slots[self._index[key]] = None if value is None else (value, stand_in if version is None else version)
        return KvState(tuple(slots), last, _still_needed(unbound, slots))

    def _require(self, state: KvState, key: str, version: int) -> KvState | None:
        """The state in which `key` has this version, None when it cannot."""
        slot = state.slots[self._index[key]]
        if slot is None:
            return state if version == ABSENT else None
        if version in (ANY, slot[1]):
            return state
        return _bind(state, slot[1], version) if slot[1] < 0 and version > 0 else None


def _still_needed(unbound: tuple[tuple[int, int, int], ...], slots: Sequence[Slot]) -> tuple[tuple[int, int, int], ...]:
    if not unbound:
        return unbound
    present = [slot[1] for slot in slots if slot is not None]
    return tuple(entry for entry in unbound if entry[0] in present)


def _bind(state: KvState, stand_in: int, version: int) -> KvState | None:
    """The unknown version turns out to be `version`: it must fit between those of the changes before and after."""
    unbound: list[tuple[int, int, int]] = []
    is_before = True
    for other, low, high in state.unbound:
        if other == stand_in:
            is_before = False
            if not low < version < high:
                return None
        elif is_before:
            unbound.append((other, low, min(high, version)))
        else:
            unbound.append((other, max(low, version), high))
    if any(low >= high for _, low, high in unbound):
        return None
    slots = tuple((slot[0], version) if slot is not None and slot[1] == stand_in else slot for slot in state.slots)
    return KvState(slots, max(state.last, version), tuple(unbound))


def _below(state: KvState, stand_in: int, limit: int) -> KvState | None:
    """The unknown version turns out to be below `limit`, and so are those of the changes before it."""
    unbound: list[tuple[int, int, int]] = []
    is_before = True
    for other, low, high in state.unbound:
        unbound.append((other, low, min(high, limit) if is_before else high))
        is_before = is_before and other != stand_in
    if any(low >= high for _, low, high in unbound):
        return None
    return state if tuple(unbound) == state.unbound else replace(state, unbound=tuple(unbound))


# --- whole histories -------------------------------------------------------------------------------------------------


def check_key_value(
    history: Iterable[KvOperation], *, configurations_max: int = CONFIGURATIONS_MAX
) -> list[tuple[tuple[str, ...], Verdict[KvState, KvAction]]]:
    """Each part of the history that is not linearizable (or undecided), with its keys; nothing when all is well."""
    found = []
    for keys, operations in partition_by_keys(history):
        verdict = check_part(keys, operations, configurations_max=configurations_max)
        if not verdict.is_linearizable:
            found.append((keys, verdict))
    return found


def check_part(
    keys: Sequence[str], operations: Sequence[KvOperation], *, configurations_max: int = CONFIGURATIONS_MAX
) -> Verdict[KvState, KvAction]:
    """Whether operations on `keys`, and on no others, are linearizable."""
    known, optional = _prepare(operations)
    return search(KeyValueModel(keys), known, optional, configurations_max=configurations_max)


def keys_of(action: KvAction) -> list[str]:
    """The keys that it names, and its prefixes, as keys that may exist too."""
    if isinstance(action, Get):
        return list(dict.fromkeys([*action.found, *action.below]))
    return list(dict.fromkeys([*action.compares, *action.values, *action.newest, *action.deleted]))


def prefixes_of(action: KvAction) -> list[str]:
    """Those of its ranges."""
    return list(action.below) if isinstance(action, Get) else [*action.newest, *action.deleted]


def partition_by_keys(history: Iterable[KvOperation]) -> list[tuple[tuple[str, ...], list[KvOperation]]]:
    """The history in parts whose operations share keys, directly or through others. A range shares all keys that begin with
    its prefix. What failed for sure is left out."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = parent[above]
            key = parent[key]
        return key

    operations = [operation for operation in history if operation.outcome is not Outcome.FAILED]
    for operation in operations:
        first, *others = keys_of(operation.action)
        top = root(first)
        for key in others:
            parent[root(key)] = top
    named = list(parent)
    for prefix in dict.fromkeys(prefix for operation in operations for prefix in prefixes_of(operation.action)):
        for key in named:
            if key.startswith(prefix):
                parent[root(key)] = root(prefix)
    keys: dict[str, list[str]] = {}
    for key in parent:
        keys.setdefault(root(key), []).append(key)
    parts: dict[str, list[KvOperation]] = {}
    for operation in operations:
        parts.setdefault(root(keys_of(operation.action)[0]), []).append(operation)
    return [(tuple(sorted(keys[name])), part) for name, part in parts.items()]


def _prepare(operations: Sequence[KvOperation]) -> tuple[list[KvOperation], list[KvOperation]]:
    """(known, optional). Unknown gets say nothing. An unknown change whose value was read is known to have happened before
    that read ended. One that no operation can have seen is left out. Values that were never read are all alike."""
    known = [operation for operation in operations if operation.outcome is Outcome.OK]
    unknown = [(op, op.action) for op in operations if op.outcome is Outcome.UNKNOWN and isinstance(op.action, Change)]
    read_by: dict[tuple[str, bytes], int] = {}
    for operation in known:
        if isinstance(operation.action, Get):
            for key, seen in operation.action.found.items():
                if seen is not None:
                    value = (key, seen.value)
                    read_by[value] = min(read_by.get(value, operation.returned_at), operation.returned_at)
    writers = Counter(value for operation in operations for value in _values_of(operation.action))
    optional: list[KvOperation] = []
    may_matter = _has_unexplained_versions(operations)
    for operation, change in unknown:
        values = _values_of(change)
        returns = [read_by[value] for value in values if value in read_by and writers[value] == 1]
        if returns:
            happened = replace(change, result=Changed())
            known.append(replace(operation, outcome=Outcome.OK, action=happened, returned_at=min(returns)))
        elif may_matter or change.deleted or None in change.values.values() or any(value in read_by for value in values):
            optional.append(replace(operation, action=replace(change, values=_blurred(change.values, read_by))))
    return known, optional


def _blurred(values: Mapping[str, bytes | None], read_by: Mapping[tuple[str, bytes], int]) -> Mapping[str, bytes | None]:
    """The values, with one and the same in place of each that was never read."""
    blurred: dict[str, bytes | None] = {}
    for key, value in values.items():
        unread = b"?"
        while (key, unread) in read_by:
            unread += b"?"
        blurred[key] = value if value is None or (key, value) in read_by else unread
    return blurred


def _values_of(action: KvAction) -> list[tuple[str, bytes]]:
    values = action.values.items() if isinstance(action, Change) else ()
    return [(key, value) for key, value in values if value is not None]


def _has_unexplained_versions(operations: Sequence[KvOperation]) -> bool:
    """Whether some version is spoken of that no answered change has, so that an unknown one may have it."""
    made: dict[int, None] = {}
    spoken: dict[int, None] = {}
    for operation in operations:
        match operation.action:
            case Get(found=found, below=below):
                spoken.update({seen.version: None for seen in found.values() if seen is not None and seen.version})
                # Some key was there, whose version nobody told.
                spoken.update(dict.fromkeys([ANY] if any(below.values()) else ()))
            case Change(compares=compares, result=Conflict(current=current, newest=newest)):
                # What a compare that failed had expected need never have existed.
                held = (version for key, version in compares.items() if key not in current)
                spoken.update(dict.fromkeys([*held, *current.values(), *newest.values()]))
            case Change(compares=compares, result=result):
                spoken.update(dict.fromkeys(compares.values()))
                if isinstance(result, Changed) and result.version is not None:
                    made[result.version] = None
    return any(version not in made for version in spoken if version != ABSENT)


def check_positions(history: Iterable[KvOperation]) -> list[str]:
    """One log for all keys: every answer stands after all that was answered before it was asked, and no two changes share a
    version. Takes time of n log n, whatever the keys; finds what crosses parts."""
    found: list[str] = []
    answered = [(operation, *_position(operation.action)) for operation in history if operation.outcome is Outcome.OK]
    changes: dict[int, KvOperation] = {}
    for operation, position, is_change in answered:
        if is_change and position is not None:
            if position in changes:
                found.append(f"two changes have version {position - 1}: {changes[position]} and {operation}")
            changes[position] = operation
    returns = sorted((row for row in answered if row[1] is not None), key=lambda row: row[0].returned_at)
    floor, upto, by = 0, 0, ""
    for operation, position, is_change in sorted(answered, key=lambda row: row[0].invoked_at):
        while upto < len(returns) and returns[upto][0].returned_at < operation.invoked_at:
            before, reached, _ = returns[upto]
            if reached is not None and reached > floor:
                floor, by = reached, str(before)
            upto += 1
        if position is not None and (position < floor or (is_change and position == floor)):
            found.append(f"{operation} stands at {position}, but {floor} had been reached before it was asked: {by}")
    return found


def _position(action: KvAction) -> tuple[int | None, bool]:
    """(the offset that the answer reflects, exclusive; whether it is that of a change of its own)."""
    match action:
        case Get(position=position):
            return position, False
        case Change(result=Conflict(position=position)):
            return position, True
        case Change(result=Changed(version=version)) if version is not None:
            return version + 1, True
    return None, False
