"""What the reserved keys hold: one decoder for each, from whatever was committed to a value, or to a refusal that says why.

Owns the meaning of every key under `/raftlake/`. Invariants: no key and no bytes make a decoder raise, and the result depends
on the arguments alone, so that all nodes take, or ignore, an entry alike. Therefore no limit of the interpreter decides (depth
of nested JSON, digits of a number): limits of this module are reached first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from raftlake.errors import WireError
from raftlake.kv.keys import (
    CLUSTER_KEY,
    INCARNATION_KEY,
    NODES_PREFIX,
    PRODUCERS_NEXT_KEY,
    TOPICS_PREFIX,
)
from raftlake.kv.machine import Entry
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, Epoch, NodeId, ReplicaKey, VoterEndpoint, VoterSet
from raftlake.replica.config import METADATA_TOPIC, Endpoint
from raftlake.replica.quorum import voters_to_json
from raftlake.wire.ids import id_from_text, id_to_text

#: Ids that a node takes for its producers at a time. Each block is one command, so that no id above this many for each offset
#: of the log has ever been given out.
PRODUCER_IDS_BLOCK = 1000
NAME_LENGTH_MAX = 249
VALUE_BYTES_MAX = 64 * 1024
#: Opening brackets in one value, and so the depth of its nesting.
BRACKETS_MAX = 300
VOTERS_MAX = 64
CONFIGS_MAX = 100
HOST_CHARACTERS_MAX = 255
REASON_CHARACTERS_MAX = 300
INT_DIGITS_MAX = 19
ID_MAX = 2**31 - 1
PORT_MAX = 65_535
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
#: What no text of a key's value may hold: control characters, ends of lines, what reverses the order of letters, halves of
#: pairs, and what will never be a character. Written out, because `isprintable` asks the Unicode version of its Python, and all
#: nodes have to decide alike.
_UNFIT = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
    + "]"
)
_HOST_BANNED = frozenset(' "#/<>?@\\')


@dataclass(frozen=True, slots=True)
class Refused:
    """An entry that means nothing, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where clients reach a node; `http` is None while it has no HTTP front."""

    node_id: NodeId
    listener: Endpoint
    http: Endpoint | None


@dataclass(frozen=True, slots=True)
class Incarnation:
    directory_id: DirectoryId
    node_id: NodeId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    #: Who votes in its groups until their own logs say so; None where they begin with the static voters.
    voters: VoterSet | None = None

    def groups(self) -> list[GroupId]:
        return list(self.each_group())

    def each_group(self) -> Iterator[GroupId]:
        """The groups one after the other, for who does not need all at once."""
        return (GroupId(self.name, index, self.topic_id) for index in range(self.partitions))

    def encode(self) -> bytes:
        value = {"id": id_to_text(self.topic_id), "partitions": self.partitions, "configs": dict(self.configs)}
        if self.voters is not None:
            value["voters"] = voters_to_json(self.voters)
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


Reserved = NodeAddresses | Incarnation | Topic | str | int


def decode(key: str, value: bytes, version: int, partitions_max: int) -> Reserved | Refused:
    """What the entry of a reserved key says."""
    if key.startswith(NODES_PREFIX):
        return decode_node(key, value)
    if key.startswith(TOPICS_PREFIX):
        return decode_topic(key.removeprefix(TOPICS_PREFIX), value, partitions_max)
    if key == CLUSTER_KEY:
        return decode_cluster(value)
    if key == PRODUCERS_NEXT_KEY:
        return decode_producers_next(value, version)
    if key == INCARNATION_KEY:
        return decode_incarnation(value)
    return Refused("no node writes this key")


def decode_node(key: str, value: bytes) -> NodeAddresses | Refused:
    """The addresses under a key of NODES_PREFIX."""

    def read() -> NodeAddresses:
        node_id = _node_id(key.removeprefix(NODES_PREFIX))
        fields = _object(value)
        http = None
        if fields.get("http_port"):
            http = _endpoint(fields["http_host"], fields["http_port"])
        return NodeAddresses(node_id, _endpoint(fields["host"], fields["port"]), http)

    return _read(read)


def decode_cluster(value: bytes) -> str | Refused:
    """The cluster id under CLUSTER_KEY."""
    return _read(lambda: id_to_text(id_from_text(_text(_object(value)["cluster_id"]))))


def decode_producers_next(value: bytes, version: int) -> int | Refused:
    """The next free producer id under PRODUCERS_NEXT_KEY, whose entry stands at `version`."""

    def read() -> int:
        known = _count(value.decode("ascii"))
        if known > PRODUCER_IDS_BLOCK * version:
            raise ValueError(f"{known} ids cannot have been given out by {version} commands")
        return known

    return _read(read)


def first_free_producer_id(entry: Entry | None) -> int:
    """Above every producer id that was ever given out. Of a spoilt entry it is not known how far the ids were, but how far they
    can have been."""
    known = 0 if entry is None else decode_producers_next(entry.value, entry.version)
    if entry is not None and isinstance(known, Refused):
        return PRODUCER_IDS_BLOCK * entry.version
    assert isinstance(known, int)
    return known


def decode_incarnation(value: bytes) -> Incarnation | Refused:
    """The value of INCARNATION_KEY."""

    def read() -> Incarnation:
        fields = _object(value)
        directory_id = DirectoryId(id_from_text(_text(fields["directoryId"])))
        return Incarnation(directory_id, NodeId(_int(fields["nodeId"], 0, ID_MAX)), Epoch(_int(fields["epoch"], 0, ID_MAX)))

    return _read(read)


def decode_topic(name: str, value: bytes, partitions_max: int) -> Topic | Refused:
    """The topic that is described under the key of `name`."""

    def read() -> Topic:
        fault = fault_of_name(name)
        if fault is not None:
            raise ValueError(fault)
        fields = _object(value)
        topic_id = id_from_text(_text(fields["id"]))
        if not any(topic_id[:8]):
            raise ValueError("the id is one of those that Kafka keeps for itself")
        partitions = _int(fields["partitions"], 1, partitions_max)
        voters = _voters(fields["voters"]) if "voters" in fields else None
        return Topic(name, topic_id, partitions, _configs(fields.get("configs", {})), voters)

    return _read(read)


def fault_of_name(name: str) -> str | None:
    """What is wrong with a topic's name by Kafka's rule; None for a good one."""
    if name in (".", "..") or len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        return (
            f"topic name {name[:NAME_LENGTH_MAX]!r} must be 1 to {NAME_LENGTH_MAX} of the characters a-z A-Z 0-9 . _ - "
            "and not '.' or '..'"
        )
    return f"{METADATA_TOPIC} is the quorum's own log" if name == METADATA_TOPIC else None


_T = TypeVar("_T")


def _read(read: Callable[[], _T]) -> _T | Refused:
    try:
        return read()
    except KeyError as error:
        return Refused(f"{error.args[0]} is missing")
    except (ValueError, TypeError, WireError) as error:
        return Refused(str(error)[:REASON_CHARACTERS_MAX])


def _object(value: bytes) -> dict[str, Any]:
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"{len(value)} bytes, at most {VALUE_BYTES_MAX} are expected")
    if value.count(b"[") + value.count(b"{") > BRACKETS_MAX:
        raise ValueError(f"more than {BRACKETS_MAX} brackets")
    fields = json.loads(value.decode("utf-8"), parse_int=_count, parse_float=_no_number, parse_constant=_no_number)
    if type(fields) is not dict:
        raise ValueError("no JSON object")
    return fields


def _count(digits: str) -> int:
    """Decimal digits without a leading zero."""
    if len(digits) > INT_DIGITS_MAX or not digits.isascii() or not digits.isdigit() or digits != str(int(digits)):
        raise ValueError(f"{digits[:INT_DIGITS_MAX]!r} is not a whole number")
    return int(digits)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:INT_DIGITS_MAX]} is not a whole number")


def _int(found: object, low: int, high: int) -> int:
    # Python takes True for a number.
    if type(found) is not int or not low <= found <= high:
        raise ValueError(f"{str(found)[:INT_DIGITS_MAX]!r} is not a number from {low} to {high}")
    return found


def _node_id(text: str) -> NodeId:
    return NodeId(_int(_count(text), 0, ID_MAX))


def _text(found: object) -> str:
    if not isinstance(found, str) or _UNFIT.search(found):
        raise ValueError("a text is expected")
    return found


def _endpoint(host: object, port: object) -> Endpoint:
    name = _text(host)
    if not 1 <= len(name) <= HOST_CHARACTERS_MAX or _HOST_BANNED.intersection(name):
        raise ValueError(f"{name[:HOST_CHARACTERS_MAX]!r} is no host")
    return Endpoint(name, _int(port, 0, PORT_MAX))


def _configs(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > CONFIGS_MAX:
        raise ValueError(f"configs are an object of at most {CONFIGS_MAX} texts")
    return {_text(key): _text(value) for key, value in found.items()}


def _voters(found: object) -> VoterSet:
    if not isinstance(found, list) or not 1 <= len(found) <= VOTERS_MAX:
        raise ValueError(f"a topic has 1 to {VOTERS_MAX} voters")
    voters: dict[NodeId, ReplicaKey] = {}
    endpoints: dict[NodeId, tuple[VoterEndpoint, ...]] = {}
    for entry in found:
        if not isinstance(entry, dict):
            raise ValueError("a voter is an object")
        node_id = NodeId(_int(entry["id"], 0, ID_MAX))
        voters[node_id] = ReplicaKey(node_id, DirectoryId(id_from_text(_text(entry["directory"]))))
        endpoints[node_id] = tuple(_voter_endpoint(place) for place in _list(entry["endpoints"]))
    ids = sorted(voters)
    return VoterSet({node_id: voters[node_id] for node_id in ids}, {node_id: endpoints[node_id] for node_id in ids})


def _list(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError("a list is expected")
    return found


def _voter_endpoint(place: object) -> VoterEndpoint:
    """As the quorum's log has it, where any text may stand for a host: peers connect to it, and no client is sent there."""
    name, host, port = _list(place)
    for text in (name, host):
        if not isinstance(text, str) or len(text.encode()) > HOST_CHARACTERS_MAX:
            raise ValueError(f"an endpoint's name and host are texts of at most {HOST_CHARACTERS_MAX} bytes")
    return VoterEndpoint(name, host, _int(port, 0, PORT_MAX))
