"""The checks of `raftlake tier verify` as plain SQL, for Spark, DuckDB and DataFusion alike. A query gives no row when all is
well.

`offset` is a word of SQL itself: behind the name of its table (`h.offset`) all three take it as a column.
"""

from __future__ import annotations

#: What the queries call the table.
VIEW = "history"

#: Each with what a row of its result says.
CHECKS: tuple[tuple[str, str], ...] = (
    (
        "Gapless: each partition has as many rows as offsets from its first to its last one.",
        f"""
SELECT h.partition, MIN(h.offset) AS first_offset, MAX(h.offset) AS last_offset, COUNT(*) AS row_count,
       MAX(h.offset) - MIN(h.offset) + 1 - COUNT(*) AS missing
FROM {VIEW} h
GROUP BY h.partition
HAVING COUNT(*) <> MAX(h.offset) - MIN(h.offset) + 1
""",
    ),
    (
        "Gaps: the offsets that are missing.",
        f"""
SELECT x.partition, x.previous + 1 AS first_missing, x.here - 1 AS last_missing
FROM (SELECT h.partition, h.offset AS here, LAG(h.offset) OVER (PARTITION BY h.partition ORDER BY h.offset) AS previous
      FROM {VIEW} h) x
WHERE x.here > x.previous + 1
""",
    ),
    (
        "Doubles: offsets that are there more than once.",
        f"""
SELECT h.partition, h.offset AS row_offset, COUNT(*) AS times
FROM {VIEW} h
GROUP BY h.partition, h.offset
HAVING COUNT(*) > 1
""",
    ),
    (
        "Epochs: rows whose leader epoch is lower than that of the row before.",
        f"""
SELECT x.partition, x.here AS row_offset, x.leader_epoch, x.previous
FROM (SELECT h.partition, h.offset AS here, h.leader_epoch,
             LAG(h.leader_epoch) OVER (PARTITION BY h.partition ORDER BY h.offset) AS previous
      FROM {VIEW} h) x
WHERE x.leader_epoch < x.previous
""",
    ),
    (
        "Batches: their rows have one epoch, one CRC, one producer, and begin at the base offset.",
        f"""
SELECT h.partition, h.batch_base_offset, MIN(h.offset) AS first_offset, COUNT(*) AS row_count
FROM {VIEW} h
GROUP BY h.partition, h.batch_base_offset
HAVING MIN(h.offset) <> h.batch_base_offset
    OR MIN(h.leader_epoch) <> MAX(h.leader_epoch) OR MIN(h.batch_crc) <> MAX(h.batch_crc)
    OR MIN(h.batch_attributes) <> MAX(h.batch_attributes) OR MIN(h.producer_id) <> MAX(h.producer_id)
    OR MIN(h.producer_epoch) <> MAX(h.producer_epoch) OR MIN(h.base_sequence) <> MAX(h.base_sequence)
    OR MIN(h.incarnation) <> MAX(h.incarnation)
""",
    ),
)


def checks_sql(uri: str) -> str:
    """All checks of one table as a script, with the two ways to name the table in front."""
    lines = [
        f"-- The checks of `raftlake tier verify` on {uri}. Each query gives no row when all is well.",
        "-- CRCs, files and the quorum's keys are beyond SQL: the command itself checks them.",
        "",
        "-- Spark with Delta:",
        f"CREATE OR REPLACE TEMPORARY VIEW {VIEW} AS SELECT * FROM delta.`{uri.replace('`', '``')}`;",
        "-- DuckDB, in its place, after INSTALL delta and LOAD delta:",
        f"-- CREATE OR REPLACE TEMPORARY VIEW {VIEW} AS SELECT * FROM delta_scan('{uri.replace(chr(39), chr(39) * 2)}')",
    ]
    for title, query in CHECKS:
        lines += ["", f"-- {title}", query.strip() + ";"]
    return "\n".join(lines)
