/**
 * State of streaming queries in the quorum's logs: what {@link io.raftlake.spark.QuorumStateStoreProvider} is made of.
 *
 * <p>Reading order: {@link io.raftlake.spark.state.Trailer} and {@link io.raftlake.spark.state.Change} (the records of a
 * changelog), {@link io.raftlake.spark.state.Changelog} (versions in a partition: written, found, trimmed), {@link
 * io.raftlake.spark.state.StateTopics} (which topic), {@link io.raftlake.spark.state.StoreLog} (the changelog of one store),
 * {@link io.raftlake.spark.state.LoggedRocksDb} and {@link io.raftlake.spark.state.LoggedFileManager} (where Spark asks for
 * changelogs), {@link io.raftlake.spark.state.Pointer} (checkpoint format 1), {@link io.raftlake.spark.state.ChangelogWriter},
 * {@link io.raftlake.spark.state.ChangelogReader} and {@link io.raftlake.spark.state.ChangeFeed} (Spark's classes over a
 * changelog).
 * {@link io.raftlake.spark.state.StateCollector} removes the topics of checkpoints that are gone, {@link
 * io.raftlake.spark.state.Standby} copies the snapshots of other executors to the local disk, {@link
 * io.raftlake.spark.state.Snapshot} tells what they are made of.
 *
 * <p>Invariants: a version counts when its last batch is in the log, and for the query when the fenced commit log (format 2) or
 * the fenced pointer (format 1) names it. What is before the oldest retained snapshot goes, and nothing else. A key names a
 * topic's id before the topic is there.
 */
package io.raftlake.spark.state;
