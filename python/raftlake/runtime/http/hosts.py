"""What keeps web pages of other sites away from the HTTP front: the Host and the Origin of a request.

A browser sends any page's requests to any address that its machine reaches. It tells the truth in two headers: Origin names the
page's site, and Host the name under which it found the node. A site whose name was pointed at the node (DNS rebinding) has a
Host of its own, so names are served only where they are known. An IP literal is always served: no name was resolved.
Nothing here ever allows another site anything (CORS), so a browser does not even send a PUT or DELETE of one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from raftlake.runtime.http.base import JSON, HttpError, Request

SETTING = "http.allowed.hosts"
ALL = "*"
LOOPBACK = "localhost"
_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/]+)")
_DEFAULT_PORT = {"http": "80", "https": "443"}
_READING = ("GET", "HEAD")


class AllowedHosts:
    """`names` are served beside loopback names and IP literals; with `*` among them every name is."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(plain_name(name) for name in names)
        #: The Host that was served last, as it came: a client sends the same one with each request.
        self._served: str | None = None

    def check(self, request: Request) -> None:
        """Raise HttpError for a request that may be of a page of another site."""
        host = request.header(b"host")
        origin = request.header(b"origin")
        if host is None:
            # No browser leaves it out. Scripts that speak HTTP/1.0 may read; RFC 9112 wants a Host in HTTP/1.1.
            if request.version != "1.0" or request.method not in _READING or origin is not None:
                raise HttpError(400, "the request has no Host header; without one, HTTP/1.0 may read and nothing else")
            return
        if origin is None and host == self._served:
            return
        parts = _HOST.fullmatch(host.lower())
        if parts is None:
            raise HttpError(400, f"Host {host!r} is no host name or address")
        if not self.allows(parts["host"]):
            raise HttpError(421, f"Host {host!r} is not served here: name it in {SETTING}, or use an IP address")
        if origin is not None and not _is_same(origin.lower(), parts):
            raise HttpError(
                403,
                f"pages of {origin!r} are not served here, for Host is {host!r}; a proxy has to pass on the browser's Host",
            )
        self._served = host

    def allows(self, host: str) -> bool:
        name = plain_name(host)
        if ALL in self._names or name in self._names or name == LOOPBACK or name.endswith("." + LOOPBACK):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def plain_name(host: str) -> str:
    """A host name as it is compared."""
    return host.lower().strip("[]").removesuffix(".")


def _is_same(origin: str, host: re.Match[str]) -> bool:
    """Whether an Origin is the one under which the node was found. A proxy may have ended TLS in front of the node."""
    parts = _ORIGIN.fullmatch(origin)
    if parts is None:
        return False
    named = _HOST.fullmatch(parts["authority"])
    if named is None or plain_name(named["host"]) != plain_name(host["host"]):
        return False
    default = _DEFAULT_PORT[parts["scheme"]]
    return (named["port"] or default) == (host["port"] or default)


def require_json(request: Request) -> None:
    """415 for a body that does not say it is JSON: a page of another site may send text/plain unasked, and no JSON."""
    given = request.header(b"content-type") or ""
    if given.partition(";")[0].strip().lower().encode() != JSON:
        told = f"not {given!r}" if given else "and none is given"
        raise HttpError(415, f"the body must be JSON: accepted is content-type: {JSON.decode()}, {told}")
