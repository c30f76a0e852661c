/**
 * The Delta table of a topic, which the remote tier of the nodes writes, as the source reads it: its log is read here, and its
 * files by Spark's own reader of Parquet. No library of Delta has to be on the class path.
 *
 * <p>Reading order: {@link io.raftlake.spark.connector.table.TopicTable} (one version of a table), {@link
 * io.raftlake.spark.connector.table.Span} (what it shows of a partition).
 *
 * <p>Invariant: a span has each of its offsets in one file, or there is no span.
 */
package io.raftlake.spark.connector.table;
