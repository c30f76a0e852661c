/**
 * {@code format("raftlake")} in Java, as Spark's Data Source V2: what the connector in Python ({@code pyspark_raftlake}) does,
 * with the same options, columns, offsets and words of errors.
 *
 * <p>Reading order: {@link io.raftlake.spark.connector.OptionNames} and {@link io.raftlake.spark.connector.SourceOptions} (what
 * users say), {@link io.raftlake.spark.connector.OffsetJson} (what checkpoints hold), {@link
 * io.raftlake.spark.connector.RaftlakeProvider} (what Spark loads), {@link io.raftlake.spark.connector.read} (the source).
 *
 * <p>Invariants: an option that is unknown, contradictory or not supported is refused by its name. A checkpoint moves between
 * both connectors in both directions.
 */
package io.raftlake.spark.connector;
