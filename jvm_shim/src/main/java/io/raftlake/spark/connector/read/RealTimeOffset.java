package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;

/** How far a task of real-time mode has read its partition: the next offset. It crosses from the executor to the driver. */
record RealTimeOffset(TopicPartition at, long next) implements PartitionOffset {}
