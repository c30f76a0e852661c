"""How the configs of a topic change: SET, DELETE, APPEND, SUBTRACT (KIP-339) or all at once. And what they keep together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.configs.definitions import (
    AS_RETENTION,
    DEFINITIONS,
    DELETE,
    ConfigType,
    Surroundings,
    checked,
    compacts,
    list_of,
    number_of,
    refusal,
    shown,
    value_in_force,
    why_unknown,
)


class Operation(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """`value` is None only for DELETE."""

    name: str
    operation: Operation
    value: str | None = None


def replaced(configs: Iterable[tuple[str, str | None]], around: Surroundings) -> dict[str, str]:
    """All configs of a topic, as CreateTopics and AlterConfigs give them. Raises RequestRejected."""
    given = require_once(configs)
    return _together({name: checked(name, value, around) for name, value in sorted(given.items())}, given, around)


def require_once(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Each name at most once, and with a value. Raises RequestRejected(INVALID_REQUEST), in Kafka's words and with the name."""
    found: dict[str, str] = {}
    for name, value in configs:
        if name in found:
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {shown(name)}")
        if value is None:
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {shown(name)}")
        found[name] = value
    return found


def altered(before: Mapping[str, str], changes: Sequence[Change], around: Surroundings) -> dict[str, str]:
    """The configs after some changes, all or none. What is not changed is not looked at: it may be of another release. Raises
    RequestRejected."""
    after = dict(before)
    for change in changes:
        definition = DEFINITIONS.get(change.name)
        if change.operation is Operation.DELETE:
            if definition is None and change.name not in before:
                raise RequestRejected(ErrorCode.INVALID_CONFIG, why_unknown(change.name))
            after.pop(change.name, None)
            continue
        value = change.value or ""
        if definition is not None and change.operation is not Operation.SET:
            if definition.type is not ConfigType.LIST:
                told = f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
                raise RequestRejected(ErrorCode.INVALID_CONFIG, told)
            entries = list_of(before.get(change.name, definition.default(around)))
            named = list_of(value)
            if change.operation is Operation.APPEND:
                entries += [entry for entry in named if entry not in entries]
            else:
                entries = [entry for entry in entries if entry not in named]
            value = ",".join(entries)
        after[change.name] = checked(change.name, value, around)
    return _together(after, [change.name for change in changes], around)


def require_same_log(before: Mapping[str, str], after: Mapping[str, str], around: Surroundings) -> None:
    """A table holds each offset of a log, and a compacted log does not (KIP-405). So with a remote tier a topic that exists
    stays compacted, or uncompacted. Raises RequestRejected(INVALID_CONFIG)."""
    if around.is_tiered and compacts(before) != compacts(after):
        kept, made = ("compacted", "without compact") if compacts(before) else ("not compacted", "with compact")
        why = (
            f"this node copies topics to a remote tier (tier.uri), but not those that are compacted. This topic is {kept}, and "
            f"stays so: create another topic {made}"
        )
        raise refusal("cleanup.policy", after.get("cleanup.policy", DELETE), why)


def _together(configs: dict[str, str], changed: Collection[str], around: Surroundings) -> dict[str, str]:
    """The configs, where those that were changed fit the others: a local retention needs a tier, and keeps no more than the
    whole one. Raises RequestRejected(INVALID_CONFIG)."""
    for name in ("retention.bytes", "retention.ms"):
        local = f"local.{name}"
        given = configs.get(local)
        part = None if given is None else number_of(given)
        if given is None or part is None or not {name, local} & set(changed):
            continue
        whole = int(value_in_force(name, configs, around))
        if part in (AS_RETENTION, whole):
            continue
        if not around.is_tiered:
            raise refusal(local, given, f"accepted is -2, the same as {name}={whole}: this node has no remote tier (tier.uri)")
        if part == -1 or 0 <= whole < part:
            raise refusal(local, given, f"it is more than {name}={whole}: nothing is kept longer here than in all")
    return configs
