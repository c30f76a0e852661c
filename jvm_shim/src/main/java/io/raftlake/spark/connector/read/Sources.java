package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.log.LogReads;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;

/** Whom the driver asks for a query: the nodes, and the tables of its topics. */
record Sources(LogReads client, LogView view, Tables tables, Configuration conf) {
    private static final long NS_PER_MS = 1_000_000;

    /** On the driver, where a session is active. */
    static Sources of(SourceOptions options) {
        LogReads client = RaftlakeScanBuilder.client(options.quorum());
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        Configuration conf = session.sessionState().newHadoopConf();
        Tables tables = new Tables(client, options, conf, () -> System.nanoTime() / NS_PER_MS);
        LogView view = options.tier().mode() == TierOptions.Mode.REMOTE
                ? new HistoryView(client, options, tables) : new LogView(client, options);
        return new Sources(client, view, tables, tables.conf());
    }
}
