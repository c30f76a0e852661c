"""Who may read a data directory: its owner alone, whatever the umask of the process.

Files are made with FILE_MODE and directories with DIRECTORY_MODE; what an earlier version made, or a copy brought along, is
mended at the start. Settings that lie in the directory are not touched, nor what links lead to. Commands that an operator
runs beside a node refuse to leave files of root in a directory of another user: the node could not open those files.
"""

from __future__ import annotations

import logging
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from raftlake.errors import WrongState
from raftlake.storage.files import DIRECTORY_MODE, FILE_MODE, storage_error

logger = logging.getLogger("raftlake.storage")

#: Made by the file system, and its own.
_FOREIGN = frozenset({"lost+found"})
META_NAME = "meta.properties"


def require_owner(root: Path) -> None:
    """Raises WrongState where root is about to write into a data directory of another user, StorageError where the system does
    not tell the owner. A directory that does not exist belongs to the process that makes it."""
    if os.geteuid() != 0:
        return
    try:
        owner = owner_id(root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("look at", root, error) from error
    if owner != 0:
        name = _user_name(owner)
        raise WrongState(
            f"run as the owner of {root} (user {name}), for example with `sudo -u {shlex.quote(name)}`: the node cannot open "
            "files of root. Nothing was changed"
        )


def owner_id(path: Path) -> int:
    """The user who owns the path. Raises OSError."""
    return path.stat().st_uid


def _user_name(user_id: int) -> str:
    """The number where the system has no name for the user, as in a container."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"#{user_id}"


def mend_modes(root: Path) -> int:
    """Take from others what they may do with a data directory and all in it; how many modes were mended. What is not ours to
    change is logged. Raises StorageError when the directory cannot be read."""
    mended = 0
    refused: list[str] = []
    closed: list[str] = []
    for path, mode, wanted in _found(root, closed):
        if mode == wanted:
            continue
        try:
            os.chmod(path, wanted)
            mended += 1
        except FileNotFoundError:
            continue
        except OSError:
            refused.append(path)
    if refused:
        told = "others may read %d files in %s, such as %a, and this process may not forbid it"
        logger.warning(told, len(refused), root, refused[0])
    if closed:
        told = "%d directories in %s are not this process's to look into, such as %a: they are left alone"
        logger.warning(told, len(closed), root, closed[0])
    return mended


def _found(root: Path, closed: list[str]) -> Iterator[tuple[str, int, int]]:
    """Each path with the mode that it has and the one that it should have. `closed` gets the directories of others that cannot
    be read, as file systems put there for their own use."""
    try:
        yield str(root), stat.S_IMODE(root.stat().st_mode), DIRECTORY_MODE
        yield from _below(str(root), closed, is_top=True)
    except OSError as error:
        raise storage_error("look at", root, error) from error


def _below(directory: str, closed: list[str], *, is_top: bool) -> Iterator[tuple[str, int, int]]:
    try:
        scanned = os.scandir(directory)
    except PermissionError:
        if is_top:
            raise
        closed.append(directory)
        return
    with scanned as entries:
        for entry in entries:
            is_settings = is_top and entry.name.endswith(".properties") and entry.name != META_NAME
            if is_settings or entry.name in _FOREIGN:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield entry.path, stat.S_IMODE(mode), DIRECTORY_MODE
                yield from _below(entry.path, closed, is_top=False)
            elif stat.S_ISREG(mode):
                yield entry.path, stat.S_IMODE(mode), FILE_MODE
