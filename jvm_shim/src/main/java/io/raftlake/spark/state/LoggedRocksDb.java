package io.raftlake.spark.state;

import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.Option;

/** Spark's RocksDB of a state store, whose changelog is in the quorum's logs. */
public final class LoggedRocksDb extends RocksDB {
    private final StateStoreId store;
    private final StoreLog log;

    /** The names behind {@code log} are those of Spark's class. */
    public LoggedRocksDb(StateStoreId store, StoreLog log, String dfsRootDir, RocksDBConf conf, File localRootDir,
            Configuration hadoopConf, String loggingId, boolean useColumnFamilies, boolean enableStateStoreCheckpointIds,
            int partitionId, Option<RocksDBEventForwarder> eventForwarder, Option<String> uniqueId) {
        super(dfsRootDir, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies, enableStateStoreCheckpointIds,
                partitionId, eventForwarder, uniqueId);
        this.store = store;
        this.log = log;
        ((LoggedFileManager) fileManager()).log = log;
    }

    @Override
    public RocksDB load(long version, Option<String> checkpointId, boolean readOnly, boolean loadEmpty) {
        try {
            RocksDB loaded = super.load(version, checkpointId, readOnly, loadEmpty);
            Standby.OF_PROCESS.loaded(store);
            return loaded;
        } finally {
            log.loaded();
        }
    }

    /** Spark's constructor calls this, before the store is known here. */
    @Override
    public RocksDBFileManager createFileManager(String dfsRootDir, File localTempDir, Configuration hadoopConf,
            String codecName, String loggingId, StateStoreConf storeConf) {
        return new LoggedFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
                conf().fileChecksumEnabled(), fileChecksumThreadPoolSize());
    }
}
