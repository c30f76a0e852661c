"""The Kafka listener of a node: connections in, requests to the node, answers out.

Reading order:

- `listener`: `Listener` accepts connections and routes each request to `ReplicaNode`, or answers ApiVersions.
- `router`: the protocol between a connection and its listener, and the limits of one connection.
- `connection`: one connection: frames in, answers out in the order of the requests.
- `request`, `turn`: one request, and which requests are dear; the place of a connection in the line of dear work.
- `frame_room`: the room for large request frames, over all connections of a node.
- `apis`: which API is served at a listener for clients, for peers, or for both.
- `api_versions`: the answer to ApiVersions.

Callers: `runtime/server.py` builds one `Listener` for each Kafka port. The package calls `runtime/peers/codec.py` for requests
of nodes, `runtime/admission.py` for the limits of connections, and `wire` for frames and messages.

Invariants:

- A connection reads no further while the requests behind its limits wait. It starts at most one consumer Fetch at a time.
- A frame larger than the small buffer of its connection gets room for its whole size before more than its beginning is read.
- Peers always get room, because requests of clients wait for requests of peers.
- A dear request of a client waits for a turn in `runtime/work_line.py` before it is decoded. Produce and
  peers never wait there.
- Bytes that break the protocol cost the connection that they came on, and nothing else.
- A broken invariant, a failed assertion or a failed disk stops the node. Any other exception of one request costs that
  connection only.
"""
