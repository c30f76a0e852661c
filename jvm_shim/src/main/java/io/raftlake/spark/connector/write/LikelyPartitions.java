package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Logs.Partition;
import java.util.List;

/**
 * Where the first tasks of a query's next batch will write: where they wrote in the batch before. Their transactions begin with
 * the batch then, while Spark still plans its tasks.
 *
 * <p>The time limit of a transaction runs from its begin. So this is for short batches, and for tasks that do not wait for
 * others.
 */
final class LikelyPartitions {
    /** A batch that took longer does not gain from some ms. */
    static final long SHORT_MS = 1_000;

    private List<TaskReport> before = List.of();

    /** A batch is over that took so long. Each of its tasks has reported, in their order. */
    void note(List<TaskReport> reports, long tookMs) {
        before = tookMs < SHORT_MS ? List.copyOf(reports) : List.of();
    }

    /** Nothing where that is not known, or where there are fewer slots than the task needs to begin at once. */
    List<Partition> of(int task, int slots) {
        return task < Math.min(slots, before.size()) ? before.get(task).partitions() : List.of();
    }
}
