"""Building Kafka answers in the version in which they were asked.

The messages are kio's generated dataclasses, one module per version. `Answers` picks the response module that belongs to a
request and leaves out the fields that its version does not have, so that a handler is written once, for the newest.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterable
from dataclasses import MISSING, fields
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import kio.schema.errors

from raftlake.errors import ErrorCode, for_clients

NO_THROTTLE = datetime.timedelta(0)

T = TypeVar("T")
#: Told the answer to a request.
Reply = Callable[[object], None]


@lru_cache(maxsize=512)
def _response_module(request_module: str) -> ModuleType:
    package, _, kind = request_module.rpartition(".")
    assert kind == "request", request_module
    return import_module(f"{package}.response")


@lru_cache(maxsize=2048)
def _fields_of(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls) if field.init)


@lru_cache(maxsize=2048)
def _required_throttle(cls: type) -> bool:
    return any(field.name == "throttle_time" and field.default is MISSING for field in fields(cls))


class Answers:
    """Makes the parts of the answer to one request: `make("MetadataResponseBroker", node_id=1, ...)`."""

    __slots__ = ("_module",)

    def __init__(self, request: object) -> None:
        self._module = _response_module(type(request).__module__)

    def make(self, class_name: str, /, **values: Any) -> Any:
        """An instance of the response class `class_name` with those of `values` that its version knows. What clients are told
        of an error leaves through here."""
        cls = getattr(self._module, class_name)
        known = _fields_of(cls)
        chosen = {key: value for key, value in values.items() if key in known}
        if "throttle_time" not in chosen and _required_throttle(cls):
            chosen["throttle_time"] = NO_THROTTLE
        if chosen.get("error_message"):
            chosen["error_message"] = for_clients(chosen["error_message"])
        return cls(**chosen)

    def has(self, class_name: str) -> bool:
        """Whether the version of the request knows the response class `class_name`."""
        return hasattr(self._module, class_name)


def kafka_error(code: ErrorCode) -> kio.schema.errors.ErrorCode:
    """Our error code as kio writes it."""
    return kio.schema.errors.ErrorCode(int(code))


def once(asked: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """The first of those with the same key, in the order in which they are asked for. An answer may be a thousand times larger
    than the name that it is an answer to, so a name that is repeated gets it once, as at Kafka's Metadata."""
    first: dict[Hashable, T] = {}
    for each in asked:
        first.setdefault(key(each), each)
    return list(first.values())
