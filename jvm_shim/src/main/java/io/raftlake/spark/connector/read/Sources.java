package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.quorum.HttpKeySpace;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Servers;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;

/** Whom the driver asks for a query: the nodes, and the tables of its topics. */
record Sources(LogReads client, LogView view, Tables tables, Configuration conf) {
    private static final long NS_PER_MS = 1_000_000;

    /**
     * On the driver, where a session is active. {@code checksIds}: the quorum is asked which id a topic has now, whatever a
     * node that lags tells.
     */
    static Sources of(SourceOptions options, boolean checksIds) {
        LogReads client = RaftlakeScanBuilder.client(options.quorum());
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        Configuration conf = session.sessionState().newHadoopConf();
        Tables tables = new Tables(client, options, conf, () -> System.nanoTime() / NS_PER_MS);
        long askMs = options.quorum().patience().askMs();
        TopicIds ids = new TopicIds(checksIds ? () -> keys(client, options.quorum(), askMs) : null);
        LogView view = options.tier().mode() == TierOptions.Mode.REMOTE
                ? new HistoryView(client, options, ids, tables) : new LogView(client, options, ids);
        return new Sources(client, view, tables, tables.conf());
    }

    /** Over HTTP, at the listeners that the nodes name. */
    static KeySpace keys(LogReads client, Quorum quorum, long timeoutMs) throws IOException {
        List<String> listeners = client.httpListeners();
        if (listeners.isEmpty()) {
            throw new QuorumUnavailableException(
                    "no reachable node among " + quorum.servers() + " (http: no node names its http.listener)");
        }
        return new HttpKeySpace(Servers.parse(String.join(",", listeners)), timeoutMs);
    }
}
