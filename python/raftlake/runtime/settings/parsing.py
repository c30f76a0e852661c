"""How the text of one setting becomes a value: whole numbers within a range, endpoints, listeners, voters.

Every function raises `ConfigError` that names the key, the value that was given and what is accepted. Knows no file, no
environment and no default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

from raftlake.errors import ConfigError, WireError, without_secrets
from raftlake.raft.types import NodeId
from raftlake.replica.config import Endpoint
from raftlake.wire.ids import id_from_text

#: Node ids are Kafka broker ids; 2^31 - 1 is the largest that its tools accept.
NODE_ID_MAX = 2**31 - 1

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_LISTENER = re.compile(r"(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)://)?(?P<host>\[[^\]]*\]|[^:\[\]/@\s]*):(?P<port>\d{1,5})")


def fail(key: str, value: str, accepted: str) -> ConfigError:
    """The error for one bad value, in the one wording that all of them share. A password in it is left out."""
    shown = without_secrets(value if value.isprintable() else repr(value))
    return ConfigError(f"{key}={shown}: {accepted}")


def parse_int(key: str, value: str, *, low: int, high: int) -> int:
    """A whole number in [low, high]."""
    text = value.strip()
    if not re.fullmatch(r"[+-]?\d{1,20}", text, re.ASCII):
        raise fail(key, value, f"not a whole number; accepted is {low} to {high}")
    number = int(text)
    if not low <= number <= high:
        raise fail(key, value, f"out of range; accepted is {low} to {high}")
    return number


def parse_bool(key: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false"):
        raise fail(key, value, "accepted is true or false")
    return text == "true"


def parse_endpoint(key: str, value: str, *, scheme: str | None = None) -> Endpoint:
    """`host:port`, `[v6]:port`, with `scheme://` in front if `scheme` is given. Port 0 lets the system choose."""
    text = value.strip()
    if scheme is not None:
        text = text.removeprefix(f"{scheme}://").removesuffix("/")
    name, endpoint = _split_listener(key, value, text)
    if name is not None:
        raise fail(
            key, value, f"unknown scheme {name}://; accepted is host:port" + (f" or {scheme}://host:port" if scheme else "")
        )
    return endpoint


def parse_listeners(key: str, value: str) -> dict[str, Endpoint]:
    """`PLAINTEXT://h:p`, `h:p` (meaning PLAINTEXT) and `CONTROLLER://h:p`, separated by commas."""
    listeners: dict[str, Endpoint] = {}
    for entry in value.split(","):
        name, endpoint = _split_listener(key, value, entry.strip())
        name = (name or "PLAINTEXT").upper()
        if name not in ("PLAINTEXT", "CONTROLLER"):
            raise fail(
                key,
                value,
                f"unknown listener {name}; accepted are PLAINTEXT://host:port (or host:port) and CONTROLLER://host:port",
            )
        if name in listeners:
            raise fail(key, value, f"two {name} listeners; accepted is one of each")
        listeners[name] = endpoint
    if "PLAINTEXT" not in listeners:
        raise fail(key, value, "no listener for clients; accepted is PLAINTEXT://host:port, or host:port")
    return listeners


def parse_voters(key: str, value: str) -> Mapping[NodeId, Endpoint]:
    """`1@h:p,2@h:p`, in ascending order of node id."""
    accepted = "accepted is a list like 1@host:9092,2@host:9093,3@host:9094"
    voters: dict[NodeId, Endpoint] = {}
    for entry in value.split(","):
        id_text, separator, address = entry.strip().partition("@")
        if not separator or not re.fullmatch(r"\d{1,10}", id_text, re.ASCII) or int(id_text) > NODE_ID_MAX:
            raise fail(key, value, f"{entry.strip()!r} is no voter; {accepted}")
        node_id = NodeId(int(id_text))
        name, endpoint = _split_listener(key, value, entry.strip(), address)
        if name is not None or not endpoint.host or endpoint.port == 0:
            raise fail(key, value, f"{address!r} is no address that others can connect to; {accepted}")
        if node_id in voters:
            raise fail(key, value, f"voter {node_id} is listed twice; {accepted}")
        if endpoint in voters.values():
            raise fail(key, value, f"two voters share the address {endpoint}; {accepted}")
        voters[node_id] = endpoint
    return dict(sorted(voters.items()))


def parse_servers(key: str, value: str) -> tuple[Endpoint, ...]:
    """`h:p,h:p`, in the order given."""
    servers: list[Endpoint] = []
    for entry in value.split(","):
        name, endpoint = _split_listener(key, value, entry.strip())
        if name is not None or not endpoint.host or endpoint.port == 0:
            accepted = "accepted is a list like host:9092,host:9093"
            raise fail(key, value, f"{entry.strip()!r} is no address to connect to; {accepted}")
        servers.append(endpoint)
    return tuple(servers)


def parse_networks(key: str, value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """`10.0.0.0/8,fd00::/8,127.0.0.1`, separated by commas."""
    networks: list[IPv4Network | IPv6Network] = []
    for entry in value.split(","):
        try:
            networks.append(ip_network(entry.strip()))
        except ValueError as error:
            accepted = "accepted is a list like 10.0.0.0/8,192.168.1.7,fd00::/8, without bits set behind the prefix"
            raise fail(key, value, f"{entry.strip()!r} is no network; {accepted}") from error
    return tuple(networks)


def parse_hosts(key: str, value: str) -> tuple[str, ...]:
    """`raft.example,raft-1.example`, separated by commas; `*` stands for all names."""
    hosts = tuple(entry.strip() for entry in value.split(","))
    for host in hosts:
        if host != "*" and not _HOST_NAME.fullmatch(host):
            raise fail(key, value, f"{host!r} is no host name; accepted is a list of names without a port, or *")
    return hosts


def is_wildcard(host: str) -> bool:
    """Whether `host` means every interface, an address that no client can connect to."""
    return host in ("", "0.0.0.0", "::")


def _split_listener(key: str, value: str, entry: str, address: str | None = None) -> tuple[str | None, Endpoint]:
    """One entry of a setting's value, or the address in it, as name and endpoint."""
    match = _LISTENER.fullmatch(entry if address is None else address)
    if match is None:
        expected = "host:port" if address is None else f"{entry.removesuffix(address)}host:port"
        raise fail(key, value, f"{entry!r} is not an address; accepted is {expected} (an IPv6 host in brackets)")
    port = int(match["port"])
    if port > 65535:
        raise fail(key, value, f"{entry!r}: port {port} is out of range; accepted is 0 to 65535")
    return match["name"], Endpoint(match["host"].strip("[]"), port)


def parse_topic(key: str, value: str) -> str:
    """A topic's name by Kafka's rule."""
    name = value.strip()
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise fail(key, value, "not a topic's name; accepted are 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return name


def parse_topic_id(key: str, value: str) -> bytes:
    """A topic's id as Kafka prints it; the zero id stands for "unknown" on the wire and names nothing."""
    try:
        topic_id = id_from_text(value.strip())
    except WireError as error:
        raise fail(key, value, "not a topic id; accepted are 22 characters of base64url, as Kafka prints ids") from error
    if not any(topic_id):
        raise fail(key, value, "the zero id names no topic")
    return topic_id
