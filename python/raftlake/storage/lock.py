"""The `.lock` file: one process owns a data directory at a time.

The lock is the operating system's (flock), so it ends with the process however that ends; the file itself stays. The
process id inside only tells a human whom to look for. The second line names the boot of the machine in which all logs of the
directory were recovered. When the next process finds the same one, the machine has not lost power since, and whatever was
written is still there, synced or not. A process that ends before it has recovered all of them leaves no such line behind.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.storage.files import FILE_MODE, NO_ROOM, storage_error

FILE_NAME = ".lock"
#: Linux names each boot; elsewhere every start counts as one after a power loss.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryLock:
    """Held from construction to `release`. Raises StorageError when another process holds it, naming that process."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise storage_error("open", self.path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._boot = read_boot_id()
            last = os.pread(self._descriptor, 256, 0).decode("ascii", "replace").splitlines()
            #: The machine has not been restarted since a process had recovered all that was here.
            self.is_same_boot = self._boot != "" and last[1:2] == [self._boot]
            self._names_boot = self.is_same_boot
            self._sign()
        except BlockingIOError as error:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").split("\n")[0].strip() or "unknown"
            os.close(self._descriptor)
            raise StorageError(f"{directory} is in use by process {owner}, which holds {self.path}") from error
        except OSError as error:
            os.close(self._descriptor)
            raise storage_error("lock", self.path, error) from error

    def note_recovered(self) -> None:
        """All that the last power loss left here is recovered. May be called again. Raises StorageError."""
        if self._names_boot or not self._boot:
            return
        self._names_boot = True
        try:
            self._sign()
        except OSError as error:
            raise storage_error("write", self.path, error) from error

    def _sign(self) -> None:
        """Over the last lines, in the same block. On a full disk the file is left empty. Raises OSError."""
        text = f"{os.getpid()}\n{self._boot}\n" if self._names_boot else f"{os.getpid()}\n"
        try:
            os.pwrite(self._descriptor, text.encode(), 0)
            os.ftruncate(self._descriptor, len(text))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(self._descriptor, 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_boot_id() -> str:
    """The name of this boot of the machine, "" where it has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
