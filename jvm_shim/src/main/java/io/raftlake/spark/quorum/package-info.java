/**
 * The quorum's key-value space, as programs in Java use it.
 *
 * <p>Reading order: {@link io.raftlake.spark.quorum.KeySpace} is what the rest of the jar is written against, with
 * {@link io.raftlake.spark.quorum.Txn} and {@link io.raftlake.spark.quorum.Witness};
 * {@link io.raftlake.spark.quorum.HttpKeySpace} is the one that ships, over the nodes' HTTP interface {@code /v1}.
 * {@link io.raftlake.spark.quorum.Http} sends one request until an answer decides it, each time by an
 * {@link io.raftlake.spark.quorum.Exchange}, and {@link io.raftlake.spark.quorum.Json} knows the bodies. Knows no files.
 *
 * <p>Invariants: reads are linearizable; a write is sent again only where it certainly did not happen, or where its
 * conditions let it happen once; what remains unknown is told as {@link io.raftlake.spark.quorum.UnknownOutcomeException}.
 */
package io.raftlake.spark.quorum;
