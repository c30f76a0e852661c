"""Record batches as Arrow columns and back, in bulk: the row codec of the Spark connector and of the remote tier.

No node's own process and no client imports this package. The package needs pyarrow and numpy. The package uses numba where
numba is installed; otherwise plain Python does all the work.

Reading order:

- `records`: the public names of the package; callers import this module and no other.
- `decode`: record batches to one Arrow record batch with the columns of Spark's Kafka source.
- `encode`: Arrow columns to record batches that a producer can send.
- `segment`, `segment_batches`: a segment of a log to rows that keep all of it; such rows to the same batches.
- `loading`: the rule that decides when the compiled loops are worth their loading time.
- `kernels`: the inner loops of `decode` and `encode`, compiled by numba.

Callers: the modules `reader` and `writer` of `pyspark_raftlake`, and `tier`. The package calls `wire` and `errors`.

Invariants:

- Plain Python and the compiled loops give the same rows, the same bytes and the same refusals.
- Only `loading` imports `kernels`, and only after a process has asked for more than `PLAIN_ROWS_MAX` rows.
- No kernel reads or writes outside its arrays, whatever lengths a payload claims.
- Batches of `encode` carry the base offset 0 and the epoch -1. The leader stamps the real values.
- Batches of `segment_batches` have the CRC that they had in the log, unless their rows say that they cannot have it.
"""
