"""What clients are told of a topic's configs: the value of each, where it comes from, and what it overrides (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from raftlake.replica.configs.definitions import DEFINITIONS, ConfigType, Definition, Surroundings


class Source(IntEnum):
    """Kafka's ConfigSource, as DescribeConfigs numbers it."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that gives a value; the first of several counts."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    name: str
    value: str
    source: Source
    type: ConfigType
    synonyms: tuple[Synonym, ...]
    documentation: str | None


def described(configs: Mapping[str, str], around: Surroundings) -> list[Described]:
    """Every config of a topic, by name, with those that another release has set."""
    found = [_defined(definition, configs, around) for definition in DEFINITIONS.values()]
    found += [_unknown(name, value) for name, value in configs.items() if name not in DEFINITIONS]
    return sorted(found, key=lambda each: each.name)


def _defined(definition: Definition, configs: Mapping[str, str], around: Surroundings) -> Described:
    places: list[Synonym] = []
    if definition.name in configs:
        places.append(Synonym(definition.name, configs[definition.name], Source.TOPIC))
    default, built_in = definition.default(around), definition.built_in(around)
    if definition.setting is not None and default != built_in:
        places.append(Synonym(definition.setting, default, Source.STATIC_BROKER))
    places.append(Synonym(definition.setting or definition.name, built_in, Source.DEFAULT))
    return Described(
        name=definition.name,
        value=places[0].value,
        source=places[0].source,
        type=definition.type,
        synonyms=tuple(places),
        documentation=definition.documentation,
    )


def _unknown(name: str, value: str) -> Described:
    return Described(
        name=name,
        value=value,
        source=Source.TOPIC,
        type=ConfigType.STRING,
        synonyms=(Synonym(name, value, Source.TOPIC),),
        documentation=None,
    )
