package io.raftlake.spark.connector.read;

import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What the tasks of a batch have told of one source of its query. Spark adds up the metrics of tasks in the plan of the batch,
 * tells them to its UI, and tells sources nothing.
 */
final class BatchTotals {
    /** By the names of {@link ReadMetrics}: what the progress of the query calls them. */
    private static final Map<String, String> NAMES = Map.of(
            ReadMetrics.BYTES, "bytesFetched", ReadMetrics.WAIT_MS, "fetchWaitMs", ReadMetrics.RETRIES, "fetchRetries");

    private BatchTotals() {}

    /** Of the last batch of a query of this process, by its id. Empty where Spark has no plan of it. */
    static Map<String, Long> of(String query, SparkDataStream source) {
        Map<String, Long> totals = new TreeMap<>();
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        StreamExecution found = session.sharedState().activeStreamingQueries().get(UUID.fromString(query));
        if (found != null && found.lastExecution() != null) {
            add(found.lastExecution().executedPlan(), source, totals);
        }
        return totals;
    }

    private static void add(SparkPlan plan, SparkDataStream source, Map<String, Long> totals) {
        if (plan instanceof AdaptiveSparkPlanExec adaptive) {
            add(adaptive.executedPlan(), source, totals);
        } else if (plan instanceof QueryStageExec stage) {
            add(stage.plan(), source, totals);
        } else if (plan instanceof MicroBatchScanExec scan && scan.stream() == source) {
            NAMES.forEach((name, told) -> {
                Option<SQLMetric> metric = scan.metrics().get(name);
                totals.merge(told, metric.isEmpty() ? 0 : metric.get().value(), Long::sum);
            });
        } else {
            CollectionConverters.asJava(plan.children()).forEach(child -> add(child, source, totals));
        }
    }
}
