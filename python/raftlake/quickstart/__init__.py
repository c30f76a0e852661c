"""`raftlake quickstart`: a tour of the whole product on real data, with a leader killed on the way.

The tour starts a quorum of three processes and writes 336,776 flights through the Spark sink. A streaming query reads the
flights back through the Spark source. The tour kills the leader during the query and starts it again later. At the end the tour
compares the result with statistics by pandas.

`raftlake quickstart --state` is a second tour, of checkpoints and state in the quorum. Three drivers run one stateful query
over the flights, one after the other: one is killed, one is paused and fenced, one ends the work.

Reading order:

- `tour`: the six steps in order, the comparison, and the exit code.
- `data`: the data set, and the statistics that pandas computes from the data set itself.
- `spark`: the Spark session, the write job, the streaming query and the count of the topic.
- `history`: the Delta table of the flights: the wait for its last copy, its check, and one question in SQL.
- `pulse`: a writer that makes the election visible as a pause between two acknowledged writes.
- `stop`: Ctrl-C at any moment.
- `state_tour`: the second tour, which starts, kills and pauses drivers.
- `state_driver`: the program that is one driver of the second tour.

Callers: `cli/main.py` calls `tour.run` for both tours. The package calls `local`, `client`, `wire` and `errors`, and
`tier.reader` and `tier.verify`. The package reaches the connector through Spark, by `format("raftlake")`. Only `state_driver`
and `state_tour` import the connector: for `configure`, and to find the jar.

Invariants:

- The exit code is 0 only when every number agrees and no record was lost, doubled or reordered.
- Every compared number is an integer, so the comparison is exact.
- `tour` imports `spark` only after `tour.require_spark` has found pyspark and Java.
- The tour leaves no process behind: the nodes, the drivers and the JVM of Spark end with the tour, however it ends.
- `pulse` never counts a write with an unknown outcome as acknowledged.
"""
