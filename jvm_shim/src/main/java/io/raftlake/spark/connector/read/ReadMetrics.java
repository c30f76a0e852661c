package io.raftlake.spark.connector.read;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a task tells of its reading; Spark shows the sums of all tasks. */
final class ReadMetrics {
    static final String BYTES = "raftlakeBytesFetched";
    static final String WAIT_MS = "raftlakeFetchWaitMs";
    static final String RETRIES = "raftlakeFetchRetries";
    private static final String RECORDS = "raftlakeRecords";
    private static final long NS_PER_MS = 1_000_000;

    private long bytes;
    private long waitedNs;
    private long retries;
    private long rows;

    void fetched(long count, long durationNs) {
        bytes += count;
        waitedNs += durationNs;
    }

    void retried() {
        retries++;
    }

    void rows(long count) {
        rows += count;
    }

    CustomTaskMetric[] values() {
        return new CustomTaskMetric[] {value(BYTES, bytes), value(WAIT_MS, waitedNs / NS_PER_MS), value(RETRIES, retries),
            value(RECORDS, rows)};
    }

    private static CustomTaskMetric value(String name, long value) {
        return new CustomTaskMetric() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public long value() {
                return value;
            }
        };
    }

    /** What {@link #values} are the values of. */
    static CustomMetric[] all() {
        return new CustomMetric[] {new BytesFetched(), new FetchWait(), new FetchRetries(), new Records()};
    }

    /** Spark makes one by its name. */
    public static final class BytesFetched extends CustomSumMetric {
        @Override
        public String name() {
            return BYTES;
        }

        @Override
        public String description() {
            return "bytes fetched";
        }
    }

    /** Spark makes one by its name. */
    public static final class FetchWait extends CustomSumMetric {
        @Override
        public String name() {
            return WAIT_MS;
        }

        @Override
        public String description() {
            return "milliseconds waited for fetches";
        }
    }

    /** Spark makes one by its name. */
    public static final class FetchRetries extends CustomSumMetric {
        @Override
        public String name() {
            return RETRIES;
        }

        @Override
        public String description() {
            return "fetches that failed and were repeated";
        }
    }

    /** Spark makes one by its name. */
    public static final class Records extends CustomSumMetric {
        @Override
        public String name() {
            return RECORDS;
        }

        @Override
        public String description() {
            return "records read";
        }
    }
}
