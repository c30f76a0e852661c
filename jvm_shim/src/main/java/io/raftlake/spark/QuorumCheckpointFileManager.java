package io.raftlake.spark;

import io.raftlake.spark.checkpoint.CheckpointFiles;
import io.raftlake.spark.checkpoint.LocalFiles;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * The class of {@code spark.sql.streaming.checkpointFileManagerClass}: checkpoints at {@code raftlake://} belong to one query
 * run ({@link CheckpointFiles}). Those on a local disk go the fast way ({@link LocalFiles}), those of other schemes to Spark's own
 * manager, as if no class were set.
 */
public final class QuorumCheckpointFileManager implements CheckpointFileManager {
    private final CheckpointFileManager manager;

    /** As Spark calls it. */
    public QuorumCheckpointFileManager(Path path, Configuration conf) throws IOException {
        String given = path.toUri().getScheme();
        String scheme = given == null ? FileSystem.getDefaultUri(conf).getScheme() : given;
        if (RaftlakeFileSystem.SCHEME.equals(scheme)) {
            manager = new CheckpointFiles(path, conf);
        } else if (LocalFiles.SCHEME.equals(scheme) && LocalFiles.isFor(conf)) {
            manager = new LocalFiles(path, conf);
        } else {
            manager = ofSpark(path, conf);
        }
    }

    private static CheckpointFileManager ofSpark(Path path, Configuration conf) throws IOException {
        try {
            return new FileContextBasedCheckpointFileManager(path, conf);
        } catch (Exception error) {
            // Scala's constructors do not name what they throw.
            if (error instanceof UnsupportedFileSystemException) {
                return new FileSystemBasedCheckpointFileManager(path, conf);
            }
            throw error;
        }
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        return manager.createAtomic(path, overwriteIfPossible);
    }

    @Override
    public FSDataInputStream open(Path path) {
        return manager.open(path);
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        return manager.list(path, filter);
    }

    @Override
    public void mkdirs(Path path) {
        manager.mkdirs(path);
    }

    @Override
    public boolean exists(Path path) {
        return manager.exists(path);
    }

    @Override
    public void delete(Path path) {
        manager.delete(path);
    }

    @Override
    public boolean isLocal() {
        return manager.isLocal();
    }

    @Override
    public Path createCheckpointDirectory() {
        return manager.createCheckpointDirectory();
    }

    @Override
    public void close() {
        manager.close();
    }
}
