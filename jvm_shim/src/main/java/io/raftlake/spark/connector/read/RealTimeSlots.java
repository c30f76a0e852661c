package io.raftlake.spark.connector.read;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;

/**
 * The slots that queries of real-time mode hold. A task reads its partition for all of a batch, so each partition needs a slot for
 * itself. Spark does not look: a task that waits for a slot begins when its batch is over, and reads nothing.
 */
final class RealTimeSlots {
    private static final long LOOK_PAUSE_MS = 100;
    private static final String REGISTRATION = "spark.scheduler.maxRegisteredResourcesWaitingTime";

    /** By the id of a run of a query: what each of its sources holds. */
    private static final Map<String, Map<RaftlakeStream, Integer>> HELD = new HashMap<>();

    private RealTimeSlots() {}

    /**
     * Takes so many slots for a source of a run, in place of those that it had. IllegalStateException where there are too few
     * for it and the other queries. Executors that register are waited for, as Spark waits for them.
     */
    static void require(SparkContext context, String run, RaftlakeStream source, int needed) {
        SparkConf conf = context.getConf();
        long waitMs = context.isLocal() ? 0 : conf.getTimeAsMs(REGISTRATION, "30s");
        int others = others(run, source);
        long slots = slots(context, conf);
        for (long waited = 0; others + needed > slots && waited < waitMs; waited += LOOK_PAUSE_MS) {
            Asking.pause(LOOK_PAUSE_MS);
            slots = slots(context, conf);
        }
        if (others + needed > slots) {
            throw new IllegalStateException(tooFew(source.toString(), needed, others, slots, context.master()));
        }
        synchronized (HELD) {
            HELD.computeIfAbsent(run, absent -> new HashMap<>()).put(source, needed);
        }
    }

    static String tooFew(String source, int needed, int others, long slots, String master) {
        String held = others == 0 ? "" : ", other sources in real-time mode hold " + others;
        return "real-time mode needs a slot for each partition: " + source + " has " + needed + held + ", and there are " + slots
                + " (" + master + "). A partition without one is never read. Start Spark with " + (others + needed)
                + " (local[" + (others + needed) + "], or executors' cores / spark.task.cpus), or read fewer partitions";
    }

    private static int others(String run, RaftlakeStream source) {
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        Set<String> active = session.sharedState().activeStreamingQueries().values().stream()
                .map(query -> query.runId().toString())
                .collect(Collectors.toSet());
        active.add(run);
        synchronized (HELD) {
            HELD.keySet().retainAll(active);
            return HELD.values().stream()
                    .flatMap(sources -> sources.entrySet().stream())
                    .filter(each -> each.getKey() != source)
                    .mapToInt(Map.Entry::getValue)
                    .sum();
        }
    }

    /** How many tasks can run at a time. Executors that Spark would add are counted where it may add some. */
    private static long slots(SparkContext context, SparkConf conf) {
        if (conf.getBoolean("spark.dynamicAllocation.enabled", false)) {
            long executors = conf.getInt("spark.dynamicAllocation.maxExecutors", Integer.MAX_VALUE);
            return executors * (conf.getInt("spark.executor.cores", 1) / conf.getInt("spark.task.cpus", 1));
        }
        return context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile());
    }
}
