package io.raftlake.spark.state;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.fs.ReadAhead;
import io.raftlake.spark.log.Ahead;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.state.Changelog.Name;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The changelog of one store: found ahead of the store's load, or when it is needed first, and made by the first commit. */
public final class StoreLog {
    private static final Logger LOG = LoggerFactory.getLogger(StoreLog.class);

    private final StateStoreId store;
    private final LogSource source;
    private final Configuration conf;
    private Checkpoint checkpoint;
    private QuorumFiles files;
    private Path directory;
    private Logs logs;
    private StateTopics topics;
    private Changelog changelog;
    private long timeoutMs;
    private boolean isConfirmed;

    /** What {@link #openAhead} looks for, until the first one asks. */
    private final AtomicReference<Ahead<Optional<Changelog>>> ahead = new AtomicReference<>();

    /** The files of the snapshot that the first load begins with. */
    private final AtomicReference<ReadAhead> snapshot = new AtomicReference<>();

    private volatile boolean isLoaded;

    /** Nothing is asked of the quorum yet. */
    public StoreLog(StateStoreId store, LogSource source, Configuration conf) {
        this.store = store;
        this.source = source;
        this.conf = conf;
    }

    private synchronized Checkpoint checkpoint() throws IOException {
        if (checkpoint == null) {
            Path path = new Path(store.checkpointRootLocation());
            RaftlakeFileSystem fileSystem = RaftlakeFileSystem.of(path, conf);
            Checkpoint around = Checkpoint.around(fileSystem.files(), fileSystem.makeQualified(path), conf)
                    .orElseThrow(() -> new PathIOException(path.toString(),
                            "state lies in a checkpoint, and no file 'metadata' with the id of a query is here or above"));
            files = fileSystem.files();
            directory = fileSystem.makeQualified(store.storeCheckpointLocation());
            logs = source.open(fileSystem, conf);
            topics = new StateTopics(fileSystem.files().space(), logs, around);
            timeoutMs = FsSettings.of(conf).timeoutMs();
            checkpoint = around;
        }
        return checkpoint;
    }

    /**
     * Looks in another thread for the changelog and for the places of its newest versions, and has their changes and the files
     * of their snapshot read: who opens a store loads it next. The first one who asks for the changelog waits for the look.
     * Where it failed, or found nothing, that one looks again: a changelog may have been made since.
     */
    public void openAhead() {
        ahead.set(Ahead.of("the changelog of " + store, () -> {
            Optional<Changelog> found = lookNow();
            if (found.isPresent()) {
                Ahead<List<String>> names = Ahead.of("the snapshots of " + store, () -> Snapshot.names(files, directory));
                readAhead(found.get().lookAhead(), names);
            }
            return found;
        }));
    }

    private void readAhead(List<Name> versions, Ahead<List<String>> names) {
        try {
            Optional<Path> zip = Snapshot.newest(directory, names.get(), versions);
            if (zip.isPresent()) {
                ReadAhead begun = files.readAhead();
                snapshot.set(begun);
                Snapshot.readAhead(begun, zip.get());
                if (isLoaded) {
                    loaded();
                }
            }
        } catch (IOException failed) {
            LOG.debug("no snapshot of {} is read ahead", store, failed);
        }
    }

    /** The store was loaded, or failed to be, or is closed: what was read ahead for that goes. */
    public void loaded() {
        isLoaded = true;
        ReadAhead begun = snapshot.getAndSet(null);
        if (begun != null) {
            begun.close();
        }
    }

    /** Nothing where no version was ever committed to a log. */
    Optional<Changelog> find() throws IOException {
        Ahead<Optional<Changelog>> begun = ahead.getAndSet(null);
        Optional<Changelog> found = begun == null ? null : begun.getOrNull();
        return found != null && found.isPresent() ? found : lookNow();
    }

    private synchronized Optional<Changelog> lookNow() throws IOException {
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

    /** The look ahead needs the monitor: nobody who holds it waits for that look. */
    Changelog ensure() throws IOException {
        Optional<Changelog> found = find();
        return found.isPresent() ? found.get() : make();
    }

    private synchronized Changelog make() throws IOException {
        if (changelog == null) {
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
