package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.ProducerId;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongSupplier;

/**
 * The producers of the tasks of a query's next batch. Each takes a change of keys, which the quorum makes while the query ends the
 * batch before, and not while the next one waits.
 *
 * <p>A producer is for one attempt alone: the first one of its task. Each other attempt, and a task without a producer here, asks
 * for itself.
 */
final class NextProducers {
    /** More tasks than that are spread over executors, which ask beside one another. */
    static final int TASKS_MAX = 16;

    /** Nodes forget ids that nobody uses. */
    static final long AGE_MS_MAX = 60_000;

    /** Asks for the producer of a task, by its number. */
    @FunctionalInterface
    interface Question {
        ProducerId ask(int task) throws IOException;
    }

    private final LongSupplier nowMs;
    private Map<Integer, Ahead<ProducerId>> asked = Map.of();
    private long askedAtMs;

    /** {@code nowMs}: of a clock that only goes forward. */
    NextProducers(LongSupplier nowMs) {
        this.nowMs = nowMs;
    }

    /** Begins to ask for those of these tasks, whose transactions before are decided. */
    void ask(List<Integer> tasks, Question question) {
        Map<Integer, Ahead<ProducerId>> begun = new TreeMap<>();
        for (int task : tasks.subList(0, Math.min(TASKS_MAX, tasks.size()))) {
            begun.put(task, Ahead.of("the producer of task " + task, () -> question.ask(task)));
        }
        asked = begun;
        askedAtMs = nowMs.getAsLong();
    }

    /**
     * By task what was asked for, each once. Nothing is under way when this returns: what reached the coordinator later would fence
     * the task that asked for itself.
     */
    Map<Integer, ProducerId> take() throws InterruptedIOException {
        Map<Integer, ProducerId> found = new TreeMap<>();
        for (Map.Entry<Integer, Ahead<ProducerId>> each : asked.entrySet()) {
            ProducerId producer = each.getValue().getOrNull();
            if (producer != null) {
                found.put(each.getKey(), producer);
            }
        }
        asked = Map.of();
        return nowMs.getAsLong() - askedAtMs > AGE_MS_MAX ? Map.of() : found;
    }
}
