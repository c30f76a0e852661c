"""Places in the file space of a pipeline, and their keys: the same names that the Java class `Location` gives.

`raftlake://orders/main` is the key `/fs/orders/main`. The root of a pipeline has no key of its own. Components are written as
they are; a percent sign and control characters are %XX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from raftlake.errors import ConfigError
from raftlake.kv.commands import KEY_BYTES_MAX

SCHEME = "raftlake://"
FILES_ROOT = "/fs/"
OWNERS_ROOT = "/fs-owner/"
INTENTS_ROOT = "/fs-blobs/"
#: Of `QuorumStateStoreProvider`: a key for each checkpoint whose state is a changelog in topics.
CHANGELOGS_ROOT = "/fs-state/"

_PIPELINE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A file or a directory by its key."""

    pipeline: str
    key: str

    @staticmethod
    def parse(text: str) -> Location:
        """`raftlake://orders/main`. ConfigError for anything else, and for names that no file can have."""
        if not text.startswith(SCHEME):
            raise ConfigError(f"{text!r} is no checkpoint of a quorum; accepted is raftlake://PIPELINE/PATH")
        pipeline, _, path = text.removeprefix(SCHEME).partition("/")
        return Location.of(pipeline, path)

    @staticmethod
    def of(pipeline: str, path: str) -> Location:
        """`path` may begin with a slash. ConfigError as in `parse`."""
        if not _PIPELINE.fullmatch(pipeline) or pipeline in (".", ".."):
            raise ConfigError(f"{SCHEME}{pipeline}: a pipeline is 1 to 64 of A-Z a-z 0-9 . _ -, as in raftlake://orders/main")
        key = FILES_ROOT + pipeline
        for component in path.split("/"):
            if component in (".", ".."):
                raise ConfigError(f"{SCHEME}{pipeline}/{path}: {component!r} is no name of a file")
            if component:
                key += "/" + _escape(component)
        size = len(key.encode("utf-8", "surrogatepass"))
        if size > KEY_BYTES_MAX:
            raise ConfigError(f"{SCHEME}{pipeline}/{path}: its key would have {size} bytes, allowed are {KEY_BYTES_MAX}")
        return Location(pipeline, key)

    @staticmethod
    def of_key(key: str) -> Location:
        """The place of a key that a list gave."""
        return Location(key.removeprefix(FILES_ROOT).partition("/")[0], key)

    @property
    def is_root(self) -> bool:
        return len(self.key) == len(FILES_ROOT) + len(self.pipeline)

    @property
    def prefix(self) -> str:
        """What the keys of all that lies below begin with."""
        return self.key + "/"

    @property
    def parent(self) -> Location:
        """The directory around it. The root has none."""
        return Location(self.pipeline, self.key.rpartition("/")[0])

    @property
    def path(self) -> str:
        """Begins with a slash."""
        return _unescape(self.key[len(FILES_ROOT) + len(self.pipeline) :]) or "/"

    @property
    def owner_key(self) -> str:
        return OWNERS_ROOT + self.key.removeprefix(FILES_ROOT)

    @property
    def changelog_key(self) -> str:
        return CHANGELOGS_ROOT + self.key.removeprefix(FILES_ROOT)

    def below(self, relative: str) -> Location:
        """A file by its path from here, as in `state/0/1/5.delta`."""
        return Location.of(self.pipeline, f"{self.path}/{relative}")

    def relative(self, key: str) -> str:
        """The inverse of `below`."""
        return _unescape(key.removeprefix(self.prefix))

    def is_around(self, other: Location) -> bool:
        """Whether the other place is this one, or lies below it."""
        return other == self or other.key.startswith(self.prefix)

    def __str__(self) -> str:
        return SCHEME + self.pipeline + ("/" if self.is_root else self.path)


def _escape(component: str) -> str:
    try:
        component.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{component!r} is no name of a file: it is not valid Unicode text") from error
    return "".join(f"%{ord(c):02X}" if c == "%" or c < " " or c == "\x7f" else c for c in component)


def _unescape(name: str) -> str:
    """A percent sign that begins no %XX stands for itself."""
    if "%" not in name:
        return name
    plain = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode())
    return plain.decode(errors="replace")
