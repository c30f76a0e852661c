/**
 * The state of a running query as a table: what {@link io.raftlake.spark.LiveState} is made of. Spark's own source of state
 * reads a batch through the provider of the query; this package says which batch.
 *
 * <p>Reading order: {@link io.raftlake.spark.live.Request} (the options, with the batch that is read; {@link
 * io.raftlake.spark.live.Missing} says what they name and is not there), {@link io.raftlake.spark.live.LiveTable} (each query
 * of the table is a new request), {@link io.raftlake.spark.live.LiveScan} (one request), {@link
 * io.raftlake.spark.live.LiveReader} (one partition, and what is said when its batch is gone).
 *
 * <p>Invariants: all partitions of one request are read at one batch. The batch is the newest of the commit log, which is listed
 * after the query was asked, by a linearizable read. Nothing is written: the run that owns the checkpoint goes on.
 */
package io.raftlake.spark.live;
