package io.raftlake.spark.checkpoint;

import io.raftlake.spark.query.QueryRun;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.TaskContext;
import scala.Option;

/**
 * A run of a streaming query. In the driver, {@code query} is the id that the query keeps over its runs; in tasks it is null,
 * since Spark tells them the run alone.
 *
 * <p>How Spark 4.2 tells: the threads of a run in the driver know it ({@link QueryRun}). StateStoreProvider puts the run id into
 * the configuration of the tasks. A batch job that reads state puts an id of its own there.
 */
record Run(String id, String query) {
    /** StreamExecution.RUN_ID_KEY, of the configuration. */
    static final String RUN_ID = "sql.streaming.runId";

    /** Says for which run the calling thread works. */
    @FunctionalInterface
    interface Finder {
        Optional<Run> find(Configuration conf);
    }

    /** The run that Spark tells of; nothing for a thread of a user, and for tasks of batch jobs. */
    static Optional<Run> current(Configuration conf) {
        String ofTask = conf.get(RUN_ID);
        if (ofTask != null) {
            return Optional.of(new Run(ofTask, null));
        }
        Option<SparkContext> context = SparkContext$.MODULE$.getActive();
        if (TaskContext.get() != null || context.isEmpty()) {
            return Optional.empty();
        }
        Optional<String> query = QueryRun.query(context.get());
        return QueryRun.run(context.get()).map(id -> new Run(id, query.get()));
    }

    /** Whether it takes checkpoints. A task works on the checkpoint that its driver took. */
    boolean isOfDriver() {
        return query != null;
    }
}
