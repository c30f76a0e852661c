package io.raftlake.spark.state;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/** The changelog of one store: found when it is needed first, and made by the first commit. */
final class StoreLog {
    private final StateStoreId store;
    private final LogSource source;
    private final Configuration conf;
    private Checkpoint checkpoint;
    private QuorumFiles files;
    private Logs logs;
    private StateTopics topics;
    private Changelog changelog;
    private long timeoutMs;
    private boolean isConfirmed;

    StoreLog(StateStoreId store, LogSource source, Configuration conf) {
        this.store = store;
        this.source = source;
        this.conf = conf;
    }

    private synchronized Checkpoint checkpoint() throws IOException {
        if (checkpoint == null) {
            Path path = new Path(store.checkpointRootLocation());
            RaftlakeFileSystem fileSystem = (RaftlakeFileSystem) path.getFileSystem(conf);
            checkpoint = Checkpoint.around(fileSystem.files(), fileSystem.makeQualified(path), conf)
                    .orElseThrow(() -> new PathIOException(path.toString(),
                            "state lies in a checkpoint, and no file 'metadata' with the id of a query is here or above"));
            files = fileSystem.files();
            logs = source.open(fileSystem, conf);
            topics = new StateTopics(fileSystem.files().space(), logs, checkpoint);
            timeoutMs = FsSettings.of(conf).timeoutMs();
        }
        return checkpoint;
    }

    /** Nothing where no version was ever committed to a log. */
    synchronized Optional<Changelog> find() throws IOException {
        if (changelog == null) {
            checkpoint();
            Optional<Partition> at = topics.find(store);
            if (at.isEmpty()) {
                return Optional.empty();
            }
            changelog = new Changelog(logs, at.get(), timeoutMs);
        }
        return Optional.of(changelog);
    }

    synchronized Changelog ensure() throws IOException {
        if (find().isEmpty()) {
            TaskContext task = TaskContext.get();
            changelog = new Changelog(logs, topics.ensure(store, task == null ? 0 : task.numPartitions()), timeoutMs);
        }
        return changelog;
    }

    /** CheckpointFencedException where a newer run owns the checkpoint. */
    void confirm() throws IOException {
        checkpoint().fence().confirm();
    }

    /**
     * The same, before the first commit of the store, and then at most once a second for all stores of the process. The commit
     * log decides which versions count, and this only tells sooner.
     */
    void confirmNowAndThen() throws IOException {
        if (isConfirmed) {
            checkpoint().fence().confirmNowAndThen();
        } else {
            confirm();
            isConfirmed = true;
        }
    }

    /** Looks for the state of checkpoints that are gone, where that is due. */
    void collectIfDue(long nowMs) throws IOException {
        checkpoint();
        if (StateCollector.isDue(files.space().describe(), nowMs)) {
            new StateCollector(files, logs).collect(nowMs);
        }
    }
}
