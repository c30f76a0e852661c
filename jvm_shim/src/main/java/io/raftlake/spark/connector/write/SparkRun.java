package io.raftlake.spark.connector.write;

import java.util.OptionalLong;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.RealTimeTrigger;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

/** Which run of a query the calling thread of the driver belongs to, as Spark's streams note it down. */
final class SparkRun {
    private static final String QUERY = "sql.streaming.queryId";
    private static final String RUN = "spark.jobGroup.id";
    private static final String BATCH = "streaming.sql.batchId";

    private SparkRun() {}

    /** The run of the streaming query, also within foreachBatch; else one of its own for each call. */
    static String id() {
        String run = query().isEmpty() ? "" : property(RUN);
        return run.isEmpty() ? UUID.randomUUID().toString() : run;
    }

    /** The id of the streaming query, or empty. */
    static String query() {
        return property(QUERY);
    }

    /** The number of the batch that the query is about to run; -1 where Spark has not told it. */
    static long batch() {
        String number = property(BATCH);
        return number.isEmpty() ? -1 : Long.parseLong(number);
    }

    /**
     * How long a batch of a streaming query, by its id, is open in real-time mode; nothing in another mode. Spark tells sinks
     * nothing, and its queries have the trigger.
     */
    static OptionalLong realTimeMs(String query) {
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        StreamExecution found = session.sharedState().activeStreamingQueries().get(UUID.fromString(query));
        return found != null && found.trigger() instanceof RealTimeTrigger trigger
                ? OptionalLong.of(trigger.batchDurationMs()) : OptionalLong.empty();
    }

    /** How many tasks run at a time. */
    static int slots() {
        return org.apache.spark.sql.SparkSession.active().sparkContext().defaultParallelism();
    }

    private static String property(String name) {
        String value = org.apache.spark.sql.SparkSession.active().sparkContext().getLocalProperty(name);
        return value == null ? "" : value;
    }
}
