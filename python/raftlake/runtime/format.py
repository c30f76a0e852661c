"""`raftlake format`: make a directory the data directory of one node.

Formatting a directory again with the same values changes nothing. Other values are refused, and change nothing either."""

from __future__ import annotations

from pathlib import Path

from raftlake.errors import ConfigError, WrongState
from raftlake.raft.types import NodeId
from raftlake.runtime.log import quote
from raftlake.runtime.settings.parsing import NODE_ID_MAX
from raftlake.storage.files import storage_error
from raftlake.storage.meta import FILE_NAME, MetaProperties, format_directory, read_meta
from raftlake.wire.ids import is_cluster_id


def format_data_dir(data_dir: Path, node_id: int, cluster_id: str | None = None) -> MetaProperties:
    """Write meta.properties, or read it where it says the same already. Without a cluster id the first leader makes one.

    Raises WrongState when the directory belongs to another node or cluster, StorageError when it cannot be written.
    """
    if not 0 <= node_id <= NODE_ID_MAX:
        raise ConfigError(f"node.id={node_id}: out of range; accepted is 0 to {NODE_ID_MAX}")
    if cluster_id is not None and not is_cluster_id(cluster_id):
        raise ConfigError(f"cluster.id={quote(cluster_id)}: accepted are 1 to 64 of the characters A-Z a-z 0-9 _ . -")
    if not _is_formatted(data_dir):
        return format_directory(data_dir, node_id=NodeId(node_id), cluster_id=cluster_id)
    meta = read_meta(data_dir)
    if meta.node_id != node_id:
        raise WrongState(f"{data_dir} is formatted already, for node.id={meta.node_id}; it cannot become node.id={node_id}")
    if cluster_id is not None and meta.cluster_id != cluster_id:
        belongs = "no cluster yet" if meta.cluster_id is None else f"cluster.id={meta.cluster_id}"
        raise WrongState(f"{data_dir} is formatted already, for {belongs}; it cannot become cluster.id={cluster_id}")
    return meta


def _is_formatted(data_dir: Path) -> bool:
    """Raises StorageError for a path that the system refuses."""
    try:
        return (data_dir / FILE_NAME).exists()
    except OSError as error:
        raise storage_error("look at", data_dir, error) from error
