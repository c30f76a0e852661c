package io.raftlake.spark.connector.write;

import io.raftlake.spark.query.QueryRun;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.RealTimeTrigger;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

/** Which run of a query the calling thread of the driver belongs to, as Spark's streams note it down. */
final class SparkRun {
    private static final String BATCH = "streaming.sql.batchId";

    private SparkRun() {}

    /** The run of the streaming query, also within foreachBatch; else one of its own for each call. */
    static String id() {
        return QueryRun.run(context()).orElseGet(() -> UUID.randomUUID().toString());
    }

    /** The id of the streaming query, or empty. */
    static String query() {
        return QueryRun.query(context()).orElse("");
    }

    /** The number of the batch that the query is about to run; -1 where Spark has not told it. */
    static long batch() {
        String number = context().getLocalProperty(BATCH);
        return number == null || number.isEmpty() ? -1 : Long.parseLong(number);
    }

    /**
     * How long a batch of a streaming query, by its id, is open in real-time mode; nothing in another mode. Spark tells sinks
     * nothing, and its queries have the trigger.
     */
    static OptionalLong realTimeMs(String query) {
        Optional<StreamExecution> found = QueryRun.active(query);
        return found.isPresent() && found.get().trigger() instanceof RealTimeTrigger trigger
                ? OptionalLong.of(trigger.batchDurationMs()) : OptionalLong.empty();
    }

    /** How many tasks run at a time. */
    static int slots() {
        return context().defaultParallelism();
    }

    private static SparkContext context() {
        return SparkSession.active().sparkContext();
    }
}
