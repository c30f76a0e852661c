package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;

/** What a query reads of the topics. */
public final class RaftlakeScanBuilder implements ScanBuilder {
    private final SourceOptions options;

    public RaftlakeScanBuilder(SourceOptions options) {
        this.options = options;
    }

    /** What can be refused before any query runs. */
    public static void requireReadable(SourceOptions options) {}

    @Override
    public Scan build() {
        throw new UnsupportedOperationException("no scan yet: " + options);
    }
}
