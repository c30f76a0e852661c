package io.raftlake.spark.state;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;

/** The change feed of {@code format("statestore")}: Spark's own, which would open a file for each version. */
public final class ChangeFeed extends RocksDBStateStoreChangeDataReader {
    private final RocksDB rocksDb;
    private StateStoreChangelogReader reader;
    private int next;

    /** The names are those of Spark's class. */
    public ChangeFeed(StateStoreId storeId, RocksDB rocksDb, Path stateLocation, long startVersion, long endVersion,
            Option<String> endVersionStateStoreCkptId,
            ConcurrentHashMap<String, Tuple3<RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Object>> encoders,
            StateStoreConf storeConf, Option<String> columnFamily) {
        super(storeId, Nothing.INSTANCE, rocksDb, stateLocation, startVersion, endVersion, endVersionStateStoreCkptId,
                Nothing.INSTANCE, encoders, storeConf, columnFamily);
        this.rocksDb = rocksDb;
    }

    @Override
    public StateStoreChangelogReader currentChangelogReader() {
        while (reader == null || !reader.hasNext()) {
            close();
            if (next == versionsAndUniqueIds().length) {
                finished_$eq(true);
                return null;
            }
            Tuple2<Object, Option<String>> version = versionsAndUniqueIds()[next++];
            reader = rocksDb.fileManager().getChangelogReader((Long) version._1(), version._2());
        }
        return reader;
    }

    @Override
    public long currentChangelogVersion() {
        return (Long) versionsAndUniqueIds()[next - 1]._1();
    }

    @Override
    public void close() {
        if (reader != null) {
            reader.closeIfNeeded();
            reader = null;
        }
    }
}
