package io.raftlake.spark.state;

import io.raftlake.spark.state.Changelog.Draft;
import io.raftlake.spark.state.Changelog.Name;
import io.raftlake.spark.state.Trailer.Piece;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import org.apache.spark.sql.execution.streaming.state.LineageItem;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReader;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangelogWriter;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Snapshots as Spark keeps them, in files; changelogs in the log of the store.
 *
 * <p>In Spark's checkpoint format 2 each attempt of a version has an id. The commit log of the query, which is fenced, names
 * the one that counts. In format 1 attempts have no ids: there a small file {@code <version>.changelog}, whose creation is
 * fenced too, names the place of the attempt that counts, the one that was committed last.
 *
 * <p>A changelog that is in no log and lies as a file of Spark's is read from there: so is a state that was imported.
 */
final class LoggedFileManager extends RocksDBFileManager {
    private static final Logger LOG = LoggerFactory.getLogger(LoggedFileManager.class);
    private static final String CHANGELOG = ".changelog";

    /** Put by {@link LoggedRocksDb}, before anything is read or written. */
    StoreLog log;

    private final Path directory;
    private final Configuration conf;
    private CheckpointFileManager files;

    LoggedFileManager(String dfsRootDir, File localTempDir, Configuration hadoopConf, String codecName, String loggingId,
            StateStoreConf storeConf, boolean fileChecksumEnabled, Option<Object> fileChecksumThreadPoolSize) {
        super(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf, fileChecksumEnabled,
                fileChecksumThreadPoolSize);
        this.directory = new Path(dfsRootDir);
        this.conf = hadoopConf;
    }

    private synchronized CheckpointFileManager files() {
        if (files == null) {
            files = CheckpointFileManager$.MODULE$.create(directory, conf);
        }
        return files;
    }

    // --- changelogs --------------------------------------------------------------------------------------------------

    @Override
    public StateStoreChangelogWriter getChangeLogWriter(long version, boolean useColumnFamilies, Option<String> uniqueId,
            Option<LineageItem[]> lineage) {
        String id = uniqueId.isDefined() ? uniqueId.get() : null;
        List<Name> built = id == null || lineage.isEmpty() ? List.of() : Arrays.stream(lineage.get())
                .map(item -> new Name(item.version(), item.checkpointUniqueId()))
                .toList();
        return new ChangelogWriter(new Draft(log::ensure, version, id), draft -> {
            log.confirmNowAndThen();
            List<Piece> place = draft.commit(built);
            if (id == null) {
                Pointer.write(files(), file(version, null), place);
            }
        });
    }

    @Override
    public StateStoreChangelogReader getChangelogReader(long version, Option<String> uniqueId) {
        String id = uniqueId.isDefined() ? uniqueId.get() : null;
        try {
            Optional<Changelog> changelog = log.find();
            if (changelog.isPresent()) {
                Optional<List<Piece>> place = place(changelog.get(), version, id);
                if (place.isPresent()) {
                    return new ChangelogReader(changelog.get(), place.get(), version);
                }
            }
            if (files().exists(file(version, id))) {
                return super.getChangelogReader(version, uniqueId);
            }
            String where = changelog.map(Changelog::toString).orElse("any changelog of " + directory);
            FileNotFoundException missing = new FileNotFoundException("version " + version
                    + (id == null ? "" : " with id " + id) + " is not in " + where
                    + ": it was never committed, or was deleted since");
            throw Unchecked.as(QueryExecutionErrors$.MODULE$.failedToReadStreamingStateFileError(file(version, id), missing));
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    private Optional<List<Piece>> place(Changelog changelog, long version, String id) throws IOException {
        return id == null ? Pointer.read(files(), file(version, null)) : changelog.find(new Name(version, id));
    }

    private Path file(long version, String id) {
        return new Path(directory, (id == null ? "" + version : version + "_" + id) + CHANGELOG);
    }

    @Override
    public long getLatestVersion() {
        try {
            Optional<Changelog> changelog = log.find();
            long logged = changelog.isEmpty() ? 0 : changelog.get().newestVersion();
            return Math.max(logged, super.getLatestVersion());
        } catch (IOException error) {
            throw Unchecked.as(error);
        }
    }

    // --- maintenance -------------------------------------------------------------------------------------------------

    @Override
    public void deleteOldVersions(int versionsToRetain, int maxVersionsToDelete, long minVersionsToDelete) {
        super.deleteOldVersions(versionsToRetain, maxVersionsToDelete, minVersionsToDelete);
        try {
            long keep = oldestToKeep(versionsToRetain);
            Optional<Changelog> changelog = keep == 0 ? Optional.empty() : log.find();
            if (changelog.isPresent()) {
                log.confirm();
                changelog.get().trim(keep);
            }
            log.collectIfDue(System.currentTimeMillis());
        } catch (IOException error) {
            LOG.warn("old changes of {} stay until Spark deletes old versions again: {}", directory, error.toString());
        }
    }

    /**
     * The version of the newest snapshot from which all versions to retain can be made, as in Spark's method; of the oldest
     * snapshot where an older one is left. 0 where all changes are needed.
     */
    private long oldestToKeep(int versionsToRetain) {
        long[] snapshots = Arrays.stream(files().list(directory))
                .map(FileStatus::getPath)
                .map(Path::getName)
                .filter(name -> name.endsWith(Snapshot.ZIP))
                .mapToLong(Snapshot::version)
                .sorted()
                .toArray();
        if (snapshots.length == 0) {
            return 0;
        }
        long newest = snapshots[snapshots.length - 1];
        boolean isEnough = snapshots[0] <= newest - versionsToRetain + 1;
        return isEnough ? snapshots[0] : 0;
    }
}
