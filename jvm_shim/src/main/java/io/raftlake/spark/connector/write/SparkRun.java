package io.raftlake.spark.connector.write;

import java.util.UUID;
import org.apache.spark.sql.SparkSession;

/** Which run of a query the calling thread of the driver belongs to, as Spark's streams note it down. */
final class SparkRun {
    private static final String QUERY = "sql.streaming.queryId";
    private static final String RUN = "spark.jobGroup.id";

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

    private static String property(String name) {
        String value = SparkSession.active().sparkContext().getLocalProperty(name);
        return value == null ? "" : value;
    }
}
