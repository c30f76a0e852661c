package io.raftlake.spark.connector.write;

/**
 * Which task writes.
 *
 * @param where the beginning of its errors, as "batch 7: "
 */
record SinkTask(String where, int partition, String transactionalId) {}
