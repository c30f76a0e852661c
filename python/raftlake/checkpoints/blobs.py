"""The content of large files, which lies outside of the key space, and the intents that name it while no file does.

A blob in the quorum (`log_blobs`) or in a directory (`file:`) is read and written here. One in another file system of Hadoop is
left where it is: files that point to it can be renamed and deleted, and an error names the file whose content would be needed.
The Java class `Blobs` tells what intents are for: `/fs-blobs/<pipeline>/<id>`, JSON with `mtime` (ms) and `where`.
"""

from __future__ import annotations

import json
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from raftlake.checkpoints.location import INTENTS_ROOT, Location
from raftlake.checkpoints.log_blobs import BlobName, LogBlobs
from raftlake.checkpoints.node import Node, require_content
from raftlake.checkpoints.space import Change, Space
from raftlake.client.errors import KvConflict
from raftlake.errors import ConfigError, MachineError, RaftlakeError, WrongState, without_secrets

#: Content up to this size is kept in the key space: the default of `raftlake.fs.inline.bytes`.
INLINE_BYTES = 64 * 1024


class Blobs:
    """`base` is a `file:` URI: where new blobs go. Without it they go to the quorum."""

    def __init__(self, space: Space, log: LogBlobs, clock: Callable[[], int], base: str | None = None) -> None:
        self._space = space
        self._log = log
        self._clock = clock
        self._base = None if base is None else _directory(base)

    def content(self, location: Location, node: Node) -> bytes:
        """The content of a file, checked. WrongState where it lies in a file system of Hadoop, or is gone."""
        if not node.is_blob:
            return node.content
        if BlobName.parse(node.uri) is not None:
            content = self._log.read(node.uri)
            require_content(str(location), node.facts, content)
            return content
        path = local_path(node.uri)
        if path is None:
            raise WrongState(
                f"{location} has its content at {without_secrets(node.uri)}: commands read the quorum and `file:` alone. "
                "Copy the checkpoint with Hadoop's tools (hadoop distcp), or in Spark"
            )
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                # To open a pipe waits for whoever writes into it.
                raise WrongState(f"{location} has its content at {path}, which is no file")
            with path.open("rb") as file:
                # Anybody may write a length.
                content = file.read(max(0, min(node.length, found.st_size)) + 1)
        except FileNotFoundError as error:
            raise WrongState(f"the content of {location} is gone from {path}: {error}") from error
        except OSError as error:
            raise MachineError(f"the content of {location} cannot be read here: {error}") from error
        require_content(str(location), node.facts, content)
        return content

    def write(self, location: Location, content: bytes) -> tuple[Node, str, int]:
        """Write the blob of a file that is going to be put: its node, the key of its intent, and the intent's version."""
        blob_id = str(uuid.uuid4())
        key = intent_key(location.pipeline, blob_id)
        name = self._log.name(blob_id, len(content))
        path = None if self._base is None else self._base / location.pipeline / blob_id
        uri = str(name) if path is None else f"file:{path}"
        announced = Change()
        announced.put(key, self.intent(uri), over=0)
        version = self._space.commit(announced) or self._version(key)
        if path is None:
            uri = self._log.write(name, content)
        else:
            _write(path, content)
        return Node.blob(self._clock(), blob_id, uri, content), key, version

    def _version(self, key: str) -> int:
        found = self._space.get(key)
        return 0 if found is None else found.version

    def _is_removed(self, uri: str) -> bool:
        path = local_path(uri)
        try:
            if path is None:
                return self._log.delete(uri)
            if not path.parent.is_dir():
                return False
            for each in (path, path.with_name(f".{path.name}.crc")):
                each.unlink(missing_ok=True)
        except (OSError, RaftlakeError):
            return False
        return True

    def intent(self, uri: str) -> bytes:
        return json.dumps({"mtime": self._clock(), "where": uri}, separators=(",", ":"), ensure_ascii=False).encode()

    def discard(self, change: Change, location: Location, node: Node) -> str | None:
        """Put the intent of a blob back in the change that takes its file away; the key of the intent, if there is one."""
        if not node.is_blob or not node.uri:
            return None
        key = intent_key(location.pipeline, node.uri.rpartition("/")[2])
        change.put(key, self.intent(node.uri), over=self._version(key))
        return key

    def remove(self, node: Node, key: str) -> None:
        """Remove a blob that no file points to any more. What cannot be removed here, the collector of a Spark job removes."""
        if not self._is_removed(node.uri):
            return
        gone = Change()
        gone.delete(key, at=self._version(key))
        try:
            self._space.commit(gone)
        except KvConflict:
            # A collector was faster.
            return


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MachineError(f"{path} cannot be written: {error}") from error


def intent_key(pipeline: str, blob_id: str) -> str:
    return f"{INTENTS_ROOT}{pipeline}/{blob_id}"


def local_path(uri: str) -> Path | None:
    """The path of a `file:` URI, as Hadoop and as Python write them; None for another scheme, and for what is no URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in path:
        return None
    return Path(path)


def base_of(uri: str) -> str | None:
    """The base URI under which a blob lies; None where that is no `file:`."""
    path = local_path(uri)
    return None if path is None else f"file:{path.parent.parent}"


def _directory(base: str) -> Path:
    path = local_path(base)
    if path is None or not path.is_absolute():
        raise ConfigError(f"--base-uri {without_secrets(base)}: accepted is file:/ and the path of a directory")
    return path
