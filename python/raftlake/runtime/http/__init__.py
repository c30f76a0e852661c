"""The HTTP/1.1 front of a node: the key-value space, watches, health and metrics.

Reading order:

- `front`: `HttpFront`, the routes, connections and requests of one listener.
- `connection`: one connection: the parser, the time limits, and back-pressure both ways.
- `exchange`: one request and its answer; a handler is a coroutine that runs without a task.
- `base`: `Request`, `Response` and `HttpError`; the strict parsing of paths, queries and bodies.
- `hosts`: the check of Host and Origin against web pages of other sites.
- `kv`: /v1/kv and /v1/txn, with `pages` of keys and `txn_body`, the JSON of a transaction.
- `in_line`: how a handler waits for dear work of its own.
- `watch`, `watch_cursor`: /v1/watch, the changes of keys as server-sent events; where one watcher stands, and its next piece.
- `ops`: /health/live, /health/ready and /v1/quorum; /metrics with the page of `metrics_page`.
- `tier`: /v1/tier, and the keys of the tier made anew from a table.
- `metrics_page`, `query_lag_series`: the page for Prometheus, built in slices and kept for a second; the lag of queries in it.

Callers: `runtime/http_fronts.py` builds the fronts of a node, and `runtime/settings` builds `AllowedHosts`. The handlers call
the services of `ReplicaNode`.

Invariants:

- A connection serves its requests one at a time and in order.
- A handler returns a whole response or raises `HttpError`. Only a watch writes by itself.
- Long lists and large transactions wait in the line of all clients' dear work. Room for a page is taken before it is built.
- Reads of keys are linearizable at any node, unless the request asks for a stale read.
- 503 and 507 refuse a write before any node proposes it. 504 says that the outcome of a write is unknown.
- A watch never skips a change. `watch` tells and closes a reader that falls behind the history.
- `ops` never waits for the quorum; a follower gives the leader half a second to describe the quorum.
"""
