/**
 * The logs of the quorum, as programs in Java use them.
 *
 * <p>Reading order: {@link io.raftlake.spark.log.Logs} is what the rest of the jar is written against, with {@link
 * io.raftlake.spark.log.LogStartException}; {@link io.raftlake.spark.log.Bootstrap} says where the nodes are. Knows no files and
 * no state.
 *
 * <p>Invariants: an append that was told as done stands in the log once, on a majority. What may or may not have been appended
 * is told as {@link io.raftlake.spark.quorum.UnknownOutcomeException}.
 */
package io.raftlake.spark.log;
