package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Quorum;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * One task of a read: all that its executor needs to know.
 *
 * @param topicId the topic that the range was planned for: another id under the same name is another topic. Null: it is gone
 *     already
 * @param nodeId where to read first; {@link io.raftlake.spark.log.RangeFetches#LEADER}: at the leader
 * @param replicas the nodes that hold the partition, as far as is known
 * @param table where the range is read first; null: in the log
 */
record PlannedRange(
        OffsetRange range,
        String topicId,
        Quorum quorum,
        int nodeId,
        List<Integer> replicas,
        boolean failOnDataLoss,
        boolean readsCommitted,
        TablePiece table)
        implements InputPartition {}
