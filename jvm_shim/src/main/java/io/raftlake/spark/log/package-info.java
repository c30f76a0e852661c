/**
 * The logs of the quorum, as programs in Java use them.
 *
 * <p>Reading order: {@link io.raftlake.spark.log.Logs} is what the rest of the jar is written against, with {@link
 * io.raftlake.spark.log.LogStartException}. {@link io.raftlake.spark.log.KafkaLogs} is the one that ships, over the Kafka
 * protocol, with {@link io.raftlake.spark.log.LogSettings} and {@link io.raftlake.spark.log.Bootstrap}. Below it: {@link
 * io.raftlake.spark.log.Cluster} (who leads what, and asking again), {@link io.raftlake.spark.log.Appender} and {@link
 * io.raftlake.spark.log.Lanes} (a batch is appended once), {@link io.raftlake.spark.log.BatchWriter}, {@link
 * io.raftlake.spark.log.Batches} and {@link io.raftlake.spark.log.Codec} (record batches), {@link
 * io.raftlake.spark.log.Messages} and {@link io.raftlake.spark.log.RecordMessages} (bodies of requests), {@link
 * io.raftlake.spark.log.Connection}, {@link io.raftlake.spark.log.Pipe} and {@link io.raftlake.spark.log.Idle} (sockets), {@link
 * io.raftlake.spark.log.Out} and {@link io.raftlake.spark.log.In} (bytes). {@link io.raftlake.spark.log.Ahead} asks before
 * somebody needs the answer. Knows no files and no state. Nothing of Kafka's own client is used: users bring a version of
 * their own.
 *
 * <p>Invariants: an append that was told as done stands in the log once, on a majority. What may or may not have been appended
 * is told as {@link io.raftlake.spark.quorum.UnknownOutcomeException}. A connection serves one call at a time. Fetching and
 * decoding are apart.
 */
package io.raftlake.spark.log;
