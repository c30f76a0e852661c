"""The process that reads the remote tier for a node that joins, started while the rest of the node is still being imported.

Such a node begins where its leaders' disks begin, with what the tier tells of the records before, so it asks the tier before
it fetches the first record. The process takes as long to start as the node, on another processor, so it is started before the
node's storage is imported too. It ends with the node.
"""

from __future__ import annotations

from pathlib import Path

from raftlake.errors import StorageError
from raftlake.runtime.settings.settings import Settings
from raftlake.runtime.tier_process import WorkerProcess
from raftlake.tier.calls import TierSettings


def start_early_reader(settings: Settings) -> WorkerProcess | None:
    """None where no tier is set, or the node does not join, or has a log, or knows no cluster yet. What is wrong with the
    directory is told by the start of the node."""
    location = settings.tier
    if location is None or not settings.bootstrap_servers or not _has_no_log(settings.data_dir):
        return None
    try:
        reader = WorkerProcess()
    except OSError:
        return None
    from raftlake.storage.meta import read_meta

    try:
        cluster_id = read_meta(settings.data_dir).cluster_id
        if cluster_id is not None:
            seconds = location.request_timeout_ms / 1000
            reader.tell(TierSettings(uri=location.uri, cluster_id=cluster_id, request_seconds=seconds))
            return reader
    except (StorageError, OSError):
        pass
    reader.kill()
    return None


def _has_no_log(data_dir: Path) -> bool:
    try:
        return not any(each.is_dir() for each in data_dir.iterdir())
    except OSError:
        return False
