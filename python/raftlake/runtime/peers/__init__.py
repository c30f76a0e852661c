"""The connections of a node to the other nodes: `Network` of `ports` over TCP, and the codec of the RPCs between nodes.

Reading order:

- `network`: `TcpNetwork`: four connections to each peer, reconnects, and the time limits of requests.
- `connection`: one connection to a peer: requests out, answers in.
- `codec`: `PeerCodec`, between the messages of the wire and the values of `ports`, for both sides of every RPC.
- `control`, `snapshot`, `reads`: the parts of the codec for elections, for FetchSnapshot and for ReadOffset.
- `markers`: the part for the ends of transactions.
- `offsets`: the part for ListOffsets and OffsetForLeaderEpoch of a replica that recovers from the remote tier.
- `address`: the addresses that a node may connect to (`peer.address.allow`).
- `endpoint_probe`: one ApiVersions request to an address that a new voter names (KIP-853).
- `known`: which node numbers are known, and where those nodes live.
- `moved_voters`: a message for the operator whose voters have all moved.

Callers: `runtime/server.py` builds the parts. `replica` calls `TcpNetwork` by the protocol `Network`. `runtime/listener` uses
`codec` to decode requests of nodes and to encode the replies.

Invariants:

- `TcpNetwork` calls `done` exactly once for each request, and never from within `send`.
- Fetch, elections, FetchSnapshot and forwarded requests have connections of their own. So a parked Fetch delays no vote.
- The codec knows no Raft: it passes cluster ids through, and the node checks them.
- The codec never copies the bytes of a log.
- With `peer.address.allow`, a connection goes to the very address that was checked.
"""
