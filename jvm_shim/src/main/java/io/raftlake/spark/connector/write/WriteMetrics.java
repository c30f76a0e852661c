package io.raftlake.spark.connector.write;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a task tells of its writing; Spark shows the sums of all tasks. */
final class WriteMetrics {
    private static final String RECORDS = "raftlakeRecordsWritten";
    private static final String BYTES = "raftlakeBytesSent";
    private static final String RETRIES = "raftlakeSendRetries";
    private static final String WAIT = "raftlakeSendWaitMs";
    private static final long NS_PER_MS = 1_000_000;

    private record Value(String name, long value) implements CustomTaskMetric {}

    private long rows;
    private long waitedNs;

    void row() {
        rows++;
    }

    void waited(long durationNs) {
        waitedNs += durationNs;
    }

    CustomTaskMetric[] values(long sentBytes, long retries) {
        return new CustomTaskMetric[] {new Value(RECORDS, rows), new Value(BYTES, sentBytes), new Value(RETRIES, retries),
            new Value(WAIT, waitedNs / NS_PER_MS)};
    }

    /** What {@link #values} are the values of. */
    static CustomMetric[] all() {
        return new CustomMetric[] {new Records(), new Bytes(), new Retries(), new Wait()};
    }

    /** Spark makes one by its name, as of the others. */
    public static final class Records extends CustomSumMetric {
        @Override
        public String name() {
            return RECORDS;
        }

        @Override
        public String description() {
            return "records written";
        }
    }

    /** Batches as they went out, compressed; each counts once. */
    public static final class Bytes extends CustomSumMetric {
        @Override
        public String name() {
            return BYTES;
        }

        @Override
        public String description() {
            return "bytes sent";
        }
    }

    /** How often batches waited for another leader, or another connection. */
    public static final class Retries extends CustomSumMetric {
        @Override
        public String name() {
            return RETRIES;
        }

        @Override
        public String description() {
            return "retries of sends";
        }
    }

    /** The time of tasks in sends, from the encoding of batches to their acknowledgement. */
    public static final class Wait extends CustomSumMetric {
        @Override
        public String name() {
            return WAIT;
        }

        @Override
        public String description() {
            return "time spent in sends (ms)";
        }
    }
}
