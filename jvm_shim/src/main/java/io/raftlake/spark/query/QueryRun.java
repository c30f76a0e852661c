package io.raftlake.spark.query;

import java.util.Optional;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import scala.Option;

/**
 * Which run of a streaming query a thread of the driver works for.
 *
 * <p>Spark 4.2 makes the run id the job group of the thread of the run, and the query id a local property. Threads that begin
 * there inherit both. A function of {@code foreachBatch} may choose another job group, which stays for later batches: then
 * Spark's list of active queries names the run.
 */
public final class QueryRun {
    /** StreamExecution.QUERY_ID_KEY, of the local properties. */
    private static final String QUERY_ID = "sql.streaming.queryId";

    private static final String JOB_GROUP = "spark.jobGroup.id";

    private QueryRun() {}

    /** The id of the query; nothing on a thread of a user. */
    public static Optional<String> query(SparkContext context) {
        return Optional.ofNullable(context.getLocalProperty(QUERY_ID));
    }

    /** Whether the job of this task, null for none, is one of a streaming query. */
    public static boolean isOfQuery(TaskContext task) {
        return task != null && task.getLocalProperty(QUERY_ID) != null;
    }

    /** The id of its run; nothing on a thread of a user. */
    public static Optional<String> run(SparkContext context) {
        return query(context).map(query -> {
            String group = context.getLocalProperty(JOB_GROUP);
            Optional<StreamExecution> active = active(query);
            boolean isItsThread = active.filter(one -> one.queryExecutionThread() == Thread.currentThread()).isPresent();
            return choose(group, active.map(StreamExecution::runId).orElse(null), isItsThread);
        });
    }

    /**
     * @param active the run of the query that Spark has; null for none
     * @param isItsThread whether the caller is the thread of that run. Other threads may be left of a run before it
     */
    static String choose(String group, UUID active, boolean isItsThread) {
        return active != null && (isItsThread || !isId(group)) ? active.toString() : group;
    }

    private static boolean isId(String text) {
        try {
            return text != null && UUID.fromString(text).toString().equals(text);
        } catch (IllegalArgumentException other) {
            return false;
        }
    }

    /** The query of this id, where it is active. */
    public static Optional<StreamExecution> active(String query) {
        Option<SparkSession> session = SparkSession.getActiveSession();
        if (session.isEmpty()) {
            session = SparkSession.getDefaultSession();
        }
        return session.isEmpty() || !isId(query)
                ? Optional.empty()
                : Optional.ofNullable(session.get().sharedState().activeStreamingQueries().get(UUID.fromString(query)));
    }
}
