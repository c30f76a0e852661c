package io.raftlake.hooks;

import io.raftlake.spark.QuorumCheckpointFileManager;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** The product's file manager, with a stop before and after each file of offsets and commits that is created ({@link Stop}). */
public final class PausingFiles implements CheckpointFileManager {
    private final CheckpointFileManager manager;
    private final Configuration conf;

    public PausingFiles(Path path, Configuration conf) throws IOException {
        manager = new QuorumCheckpointFileManager(path, conf);
        this.conf = conf;
    }

    /** offsets, commits; null for other files. */
    private static String kind(Path file) {
        String parent = file.getParent().getName();
        return parent.equals("offsets") || parent.equals("commits") ? parent : null;
    }

    private final class Stopping extends CancellableFSDataOutputStream {
        private final CancellableFSDataOutputStream file;
        private final String kind;
        private boolean isClosed;

        Stopping(CancellableFSDataOutputStream file, String kind) {
            super((OutputStream) file);
            this.file = file;
            this.kind = kind;
        }

        @Override
        public void close() throws IOException {
            if (isClosed) {
                return;
            }
            isClosed = true;
            Stop.reach(conf, "before-" + kind);
            super.close();
            Stop.reach(conf, "after-" + kind);
        }

        @Override
        public void cancel() {
            isClosed = true;
            file.cancel();
        }
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        CancellableFSDataOutputStream file = manager.createAtomic(path, overwriteIfPossible);
        String kind = kind(path);
        return kind == null ? file : new Stopping(file, kind);
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
