"""The process that reads the remote tier for a node that joins, started while the rest of the node is still being imported.

Such a node begins where its leaders' disks begin, with what the tier tells of the records before, so it asks the tier before
it fetches the first record. The process takes as long to start as the node, on another processor. It ends with the node.
"""

from __future__ import annotations

from raftlake.errors import StorageError
from raftlake.runtime.settings.settings import Settings
from raftlake.runtime.tier_process import WorkerProcess
from raftlake.storage.meta import read_meta
from raftlake.tier.calls import TierSettings


def start_early_reader(settings: Settings) -> WorkerProcess | None:
    """None where no tier is set, or the node does not join, or has a log, or knows no cluster yet. What is wrong with the
    directory is told by the start of the node."""
    location = settings.tier
    if location is None or not settings.bootstrap_servers:
        return None
    try:
        meta = read_meta(settings.data_dir)
        if meta.cluster_id is None or any(each.is_dir() for each in settings.data_dir.iterdir()):
            return None
        return WorkerProcess(
            TierSettings(uri=location.uri, cluster_id=meta.cluster_id, request_seconds=location.request_timeout_ms / 1000)
        )
    except (StorageError, OSError):
        return None
