package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.ProducerId;

/**
 * Which task writes.
 *
 * @param where the beginning of its errors, as "batch 7: "
 * @param producer what the driver has asked for; null where the task asks for itself
 */
record SinkTask(String where, int partition, String transactionalId, ProducerId producer) {}
