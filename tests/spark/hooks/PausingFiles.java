package io.raftlake.hooks;

import io.raftlake.spark.QuorumCheckpointFileManager;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The product's file manager, with a stop before and after each file that is created: tests/kits/sparkcluster.py says how.
 * Which stop is wanted stands in the file {@code stop-at} of the directory {@code raftlake.test.hooks}. Who comes there first
 * renames the file to {@code reached}, and waits until that is gone.
 */
public final class PausingFiles implements CheckpointFileManager {
    private static final long POLL_MS = 20;

    private final CheckpointFileManager manager;
    private final Path hooks;

    public PausingFiles(org.apache.hadoop.fs.Path path, Configuration conf) throws IOException {
        manager = new QuorumCheckpointFileManager(path, conf);
        hooks = Path.of(conf.get("raftlake.test.hooks"));
    }

    /** offsets, commits, state; null for other files. */
    private static String kind(org.apache.hadoop.fs.Path file) {
        String parent = file.getParent().getName();
        if (parent.equals("offsets") || parent.equals("commits")) {
            return parent;
        }
        boolean isState = file.toUri().getPath().contains("/state/") && Character.isDigit(file.getName().charAt(0));
        return isState && !file.toUri().getPath().contains("/_metadata/") ? "state" : null;
    }

    private void reach(String stop) throws IOException {
        Path wanted = hooks.resolve("stop-at");
        Path reached = hooks.resolve("reached");
        try {
            if (!Files.readString(wanted, StandardCharsets.UTF_8).equals(stop)) {
                return;
            }
            Files.move(wanted, reached, StandardCopyOption.ATOMIC_MOVE);
        } catch (NoSuchFileException none) {
            return;
        }
        while (Files.exists(reached)) {
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted at " + stop, ended);
            }
        }
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
            reach("before-" + kind);
            super.close();
            reach("after-" + kind);
        }

        @Override
        public void cancel() {
            isClosed = true;
            file.cancel();
        }
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(org.apache.hadoop.fs.Path path, boolean overwriteIfPossible) {
        CancellableFSDataOutputStream file = manager.createAtomic(path, overwriteIfPossible);
        String kind = kind(path);
        return kind == null ? file : new Stopping(file, kind);
    }

    @Override
    public FSDataInputStream open(org.apache.hadoop.fs.Path path) {
        return manager.open(path);
    }

    @Override
    public FileStatus[] list(org.apache.hadoop.fs.Path path, PathFilter filter) {
        return manager.list(path, filter);
    }

    @Override
    public void mkdirs(org.apache.hadoop.fs.Path path) {
        manager.mkdirs(path);
    }

    @Override
    public boolean exists(org.apache.hadoop.fs.Path path) {
        return manager.exists(path);
    }

    @Override
    public void delete(org.apache.hadoop.fs.Path path) {
        manager.delete(path);
    }

    @Override
    public boolean isLocal() {
        return manager.isLocal();
    }

    @Override
    public org.apache.hadoop.fs.Path createCheckpointDirectory() {
        return manager.createCheckpointDirectory();
    }

    @Override
    public void close() {
        manager.close();
    }
}
