"""Which API is served at which listener, as Kafka's brokers and controllers divide them (`listeners` in its message schemas).

Where peers have a listener of their own, nothing that replicas say to one another is taken anywhere else: a request for it
ends its connection, as at a broker's listener, and ApiVersions does not name it. At the peers' listener a client may ask what
Kafka's quorum tool asks with `--bootstrap-controller`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftlake.errors import WireError
from raftlake.ports.driver import ListenerUse
from raftlake.runtime.peers.codec import is_from_replica
from raftlake.wire.api import API_TABLE, Api, ApiKey, RequestHeader

#: Said by replicas alone.
REPLICAS_ONLY = frozenset(
    {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT, ApiKey.UPDATE_RAFT_VOTER}
    | {ApiKey.WRITE_MARKERS}
)
#: What anybody may ask at the peers' listener.
AT_CONTROLLERS = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
#: What the log of a node says to the operator of the other side.
PEERS_GO_ELSEWHERE = "quorum.voters and quorum.bootstrap.servers name controller.listener where a node has one"
CLIENTS_GO_ELSEWHERE = "clients connect to the address that `listeners` names first"
_PUBLIC = [api for api in API_TABLE.values() if api.public]
_LISTED: Mapping[ListenerUse, Sequence[Api]] = {
    ListenerUse.SHARED: _PUBLIC,
    ListenerUse.CLIENTS: [api for api in _PUBLIC if api.key not in REPLICAS_ONLY],
    ListenerUse.PEERS: [api for api in _PUBLIC if api.key in REPLICAS_ONLY | AT_CONTROLLERS | {ApiKey.FETCH}],
}


def listed(use: ListenerUse) -> Sequence[Api]:
    """What ApiVersions names there."""
    return _LISTED[use]


def require_for_peers(use: ListenerUse, header: RequestHeader, message: object) -> None:
    """Raise WireError for a replica's request where replicas have no business."""
    if not use.takes_peers and (header.api_key in REPLICAS_ONLY or is_from_replica(message)):
        raise WireError(f"{ApiKey(header.api_key).name} of a replica at the listener for clients: {PEERS_GO_ELSEWHERE}")


def require_for_clients(use: ListenerUse, header: RequestHeader) -> None:
    """Raise WireError for a client's request that is not served there."""
    if use is ListenerUse.PEERS and header.api_key not in AT_CONTROLLERS:
        raise WireError(f"{ApiKey(header.api_key).name} of a client at the listener for peers: {CLIENTS_GO_ELSEWHERE}")
