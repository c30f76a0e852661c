/**
 * The source: what a query reads of the topics, in batches and in streams.
 *
 * <p>Reading order: {@link io.raftlake.spark.connector.read.RaftlakeScanBuilder} (what Spark tells of the query), Planner and
 * StreamPlanner (which offsets are read, and by which tasks), Positions, Ranges and Seam (the arithmetic of it), LogView,
 * TopicIds and Tables (whom the driver asks), RangeReader (one task, of a table or of the log), RecordDecoder and RecordBlock
 * (bytes as columns), BatchTotals (what the progress tells of the tasks).
 *
 * <p>Invariants: each offset between the start and the end of a batch is read once, or the batch fails. Offsets that are gone
 * are told by {@link io.raftlake.spark.connector.read.DataLoss} alone, which {@code failOnDataLoss} makes an error or a
 * warning.
 */
package io.raftlake.spark.connector.read;
