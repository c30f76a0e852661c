"""The `raftlake` command, one module for each family of subcommands.

Reading order:

- `main`: puts the subcommands together, and turns an error into one line and an exit code.
- `streams`: makes the standard streams usable before a command begins, and gives errors of standard output their own types.
- `output`: the options that the client commands share, and the printing of tables and JSON.
- `leader`: tells a waiting user, after a few seconds, that no node leads the quorum.
- `topics`: `raftlake topics`, `raftlake produce` and `raftlake consume`.
- `produce`: the lines of `raftlake produce`, and the error that counts the appended lines.
- `kv`: `raftlake kv`, the key-value space.
- `tier`, `tier_facts`: `raftlake tier status` and `raftlake tier verify`; what they gather of the quorum and its nodes.
- `tier_undo`: `raftlake tier undo`, which takes back what other programs have done to a table.
- `checkpoints`: `raftlake checkpoints`; the package `checkpoints` does the work.
- `quorum`: `raftlake describe`, in the layout of Kafka's kafka-metadata-quorum.
- `sinks`, `sink_facts`: `raftlake sinks`, which tells what exactly-once sinks have committed; what it gathers of the quorum.
- `lag`: `raftlake lag`, which tells how far streaming queries are.
- `transactions`: `raftlake transactions`, which tells what is open or hangs, and ends it.
- `spark`: `raftlake spark-conf`, the settings of Spark for checkpoints at `raftlake://`.
- `voters`: `raftlake voters`, which lists and changes the voters (KIP-853).
- `node`: `raftlake local`, `raftlake format`, `raftlake serve` and `raftlake dump`.
- `recover`, `recover_from_tier`: the options and the output of `raftlake recover`, and of the same with `--from-tier`;
  `runtime/recovery` does the work.

Callers: the script `raftlake` and `python -m raftlake` call `main.main`. The client commands call `client`. The other commands
call `local`, `runtime`, `storage`, `tier` and `quickstart`. `leader` and `voters` ask single nodes by
`runtime/recovery/probe.py`.

Invariants:

- Each command imports `client`, node code or `quickstart` only when the command runs. So `raftlake --help` loads none of them.
- The exit code is 0 only on success. 1 is an error, 2 is wrong usage, 3 is a change with an unknown outcome.
- A reader of the output that went away (`| head`) ends a command with 141.
- Ctrl-C ends a command with 130, but stops `raftlake serve` and a ready `raftlake local` in good order.
- `raftlake consume` prints values byte for byte; only the option `--json` interprets them.
"""
