"""The settings of the remote tier: where its tables are, and what is kept on local disks beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from raftlake.errors import ConfigError
from raftlake.runtime.settings.parsing import fail

#: What delta-rs opens. Amazon's own tools write s3a.
SCHEMES = ("file", "s3", "s3a", "az", "abfs", "abfss", "gs")
NEEDED = ("deltalake", "pyarrow")
CREDENTIALS = "credentials belong into the node's environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
ACCEPTED = f"accepted is an absolute path, or {', '.join(f'{scheme}://...' for scheme in SCHEMES)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLocation:
    """Where the tables of the topics are, and how patient the node is with it."""

    uri: str
    target_lag_ms: int
    flush_bytes: int
    request_timeout_ms: int


def parse_tier_uri(key: str, value: str) -> str:
    """The place of all tables, without a slash at its end. Raises ConfigError."""
    if "://" not in value:
        if not PurePosixPath(value).is_absolute():
            raise fail(key, value, f"no absolute path; {ACCEPTED}")
    else:
        parts = urlsplit(value)
        if parts.password is not None:
            # No store takes one from there, and clients are told the place. A name alone is the container of Azure.
            raise fail(key, value, f"has a password; {CREDENTIALS}")
        if parts.scheme not in SCHEMES:
            raise fail(key, value, f"unknown scheme {parts.scheme}; {ACCEPTED}")
        if parts.scheme != "file" and not parts.netloc:
            raise fail(key, value, f"names no bucket; {ACCEPTED}")
        if parts.query or parts.fragment:
            raise fail(key, value, f"has a query or a fragment, which are left out here; {ACCEPTED}. {CREDENTIALS}")
    return value.rstrip("/") or "/"


def require_packages(key: str, value: str, find: Callable[[str], object] = find_spec) -> None:
    """What the tier needs is installed. Raises ConfigError, which says how to install it."""
    missing = [package for package in NEEDED if find(package) is None]
    if missing:
        raise ConfigError(f"{key}={value}: the tier needs {' and '.join(missing)}: pip install 'raftlake[tier]'")
