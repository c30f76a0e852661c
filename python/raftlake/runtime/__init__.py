"""The asyncio shell of a node: the process, its sockets, clocks and settings around one `ReplicaNode`.

Reading order:

- `__main__`: `python -m raftlake.runtime`, a node without the libraries of the command line.
- `server`: `NodeServer`, from the settings to the exit code: start, graceful stop, close.
- `driver`: the turns and timers of the node on the event loop.
- `settings`, `listener`, `peers`, `http`, `recovery` (packages): the settings of a node; its Kafka listener; its connections to
  other nodes; its HTTP front; `raftlake recover`.
- `http_fronts`, `sockets`, `admission`, `descriptor_shares`: the HTTP listeners; bound sockets; the limits on connections; what
  part of the file descriptors they may take.
- `preload`: imports at the start what a node may import while it runs.
- `clock`, `loop`, `aside`: the real clocks; the event loop; a thread for long jobs.
- `work_line`: long work in small pieces, and the one line in which dear requests of all clients wait for the loop.
- `tier_process`, `early_reader`: the remote tier, whose calls processes of its own make; the one that a node starts first.
- `loop_watch`, `metrics`: the pauses of the event loop; the figures for Prometheus.
- `log`, `node_log`, `refusal_log`: log lines; what a node logs of roles, damage, voters, topics and refusals; refusals at a
  bounded rate.
- `format`, `pid_file`, `free_ports`, `stop_signals`: a new data directory; `raftlake.pid`; free ports; signals that ask for a
  stop.

Callers: `cli/node.py` calls `server` and `format`. `local` starts `__main__` in child processes, and uses `format` and
`free_ports`. The package calls `ReplicaNode`, builds the stores of `storage`, and implements `Clock`, `Aside`, `Network` and
`RemoteTier` of `ports`.

Invariants:

- One thread, that of the event loop, makes every call of the node. Other threads post their results to the loop.
- Inputs ask for a turn; one iteration of the loop runs at most one turn for all of them.
- A start takes the lock of the data directory first, binds the ports next, and opens the logs then.
- A fatal error ends the process with exit code 1. A node never restarts itself.
- `log` quotes the facts of a log line, so no text of a client can forge a line.
"""
