"""What a node and the worker of a pass of compaction tell each other, one pickled message after another."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import BinaryIO

from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.driver import Compacted
from raftlake.storage.cleaned import CleanedGroup
from raftlake.storage.compaction_pass import CompactionJob


@dataclass(frozen=True, slots=True)
class PassFailed:
    """A StorageError on its way to the node. Errors with fields of their own do not survive being pickled."""

    kind: type[StorageError]
    message: str
    #: Of DamagedData.
    offset: int = -1

    @classmethod
    def of(cls, error: StorageError) -> PassFailed:
        if isinstance(error, DamagedData):
            return cls(DamagedData, str(error), error.offset)
        return cls(type(error) if isinstance(error, DiskFull) else StorageError, str(error))

    def error(self) -> StorageError:
        """The error again."""
        return DamagedData(self.message, offset=self.offset) if self.kind is DamagedData else self.kind(self.message)


Told = CleanedGroup | Compacted | PassFailed


def tell(to: BinaryIO, what: Told | CompactionJob) -> None:
    """Send a message. Raises OSError."""
    pickle.dump(what, to, pickle.HIGHEST_PROTOCOL)
    to.flush()
