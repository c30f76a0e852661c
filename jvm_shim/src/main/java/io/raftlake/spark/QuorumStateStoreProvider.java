package io.raftlake.spark;

import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.state.ChangeFeed;
import io.raftlake.spark.state.LoggedRocksDb;
import io.raftlake.spark.state.Standby;
import io.raftlake.spark.state.StoreLog;
import java.io.File;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.RocksDBEventForwarder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The class of {@code spark.sql.streaming.stateStore.providerClass}: Spark's RocksDB provider, whose changelogs are topics of the
 * quorum ({@link io.raftlake.spark.state}). Snapshots are files of the checkpoint. Where changelog checkpointing is off, and for
 * checkpoints that are not at {@code raftlake://}, it is Spark's provider.
 */
public class QuorumStateStoreProvider extends RocksDBStateStoreProvider {
    private StateStoreConf storeConf;
    private boolean isOurs;
    private StoreLog log;
    private Standby standby;

    /** As Spark calls it. */
    public QuorumStateStoreProvider() {
        Versions.requireSpark();
    }

    /** The logs of the quorum that a file system belongs to. */
    protected Logs logs(RaftlakeFileSystem fileSystem, Configuration conf) throws IOException {
        return Logs.of(LogSettings.of(conf));
    }

    @Override
    public void init(StateStoreId stateStoreId, StructType keySchema, StructType valueSchema,
            KeyStateEncoderSpec keyStateEncoderSpec, boolean useColumnFamilies, StateStoreConf conf, Configuration hadoop,
            boolean useMultipleValuesPerKey, Option<StateSchemaProvider> stateSchemaProvider) {
        String given = new Path(stateStoreId.checkpointRootLocation()).toUri().getScheme();
        isOurs = RaftlakeFileSystem.SCHEME.equals(given == null ? FileSystem.getDefaultUri(hadoop).getScheme() : given);
        storeConf = conf;
        if (isOurs) {
            log = new StoreLog(stateStoreId, this::logs, hadoop);
            log.openAhead();
        }
        try {
            super.init(stateStoreId, keySchema, valueSchema, keyStateEncoderSpec, useColumnFamilies, conf, hadoop,
                    useMultipleValuesPerKey, stateSchemaProvider);
        } catch (Throwable error) {
            // Nobody closes a store that was not opened.
            if (isOurs) {
                log.loaded();
            }
            throw error;
        }
        if (isOurs && FsSettings.of(hadoop).standbyBytes() > 0) {
            standby = Standby.OF_PROCESS;
            standby.opened(stateStoreId, hadoop);
        }
    }

    @Override
    public void doMaintenance() {
        super.doMaintenance();
        if (standby != null) {
            // Spark calls this for each partition, all of them within one interval.
            standby.wake(storeConf.maintenanceInterval() / 2);
        }
    }

    @Override
    public void close() {
        try {
            super.close();
        } finally {
            if (isOurs) {
                log.loaded();
            }
            if (standby != null) {
                standby.closed(stateStoreId());
                standby = null;
            }
        }
    }

    @Override
    public RocksDB createRocksDB(String dfsRootDir, RocksDBConf conf, File localRootDir, Configuration hadoop,
            String loggingId, boolean useColumnFamilies, boolean enableStateStoreCheckpointIds, int partitionId,
            Option<RocksDBEventForwarder> eventForwarder, Option<String> uniqueId) {
        if (!isOurs) {
            return super.createRocksDB(dfsRootDir, conf, localRootDir, hadoop, loggingId, useColumnFamilies,
                    enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId);
        }
        return new LoggedRocksDb(stateStoreId(), log, dfsRootDir, conf, localRootDir, hadoop, loggingId,
                useColumnFamilies, enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId);
    }

    @Override
    public StateStoreChangeDataReader getStateStoreChangeDataReader(long startVersion, long endVersion,
            Option<String> columnFamily, Option<String> endVersionStateStoreCkptId) {
        if (!isOurs) {
            return super.getStateStoreChangeDataReader(startVersion, endVersion, columnFamily, endVersionStateStoreCkptId);
        }
        return new ChangeFeed(stateStoreId(), rocksDB(), stateStoreId().storeCheckpointLocation(), startVersion, endVersion,
                endVersionStateStoreCkptId,
                org$apache$spark$sql$execution$streaming$state$RocksDBStateStoreProvider$$keyValueEncoderMap(), storeConf,
                columnFamily);
    }
}
