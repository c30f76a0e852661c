package io.raftlake.spark.state;

import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The files and the codec that the classes of Spark's changelogs ask for when they are made. Changes in a log need neither.
 * What is written goes nowhere, and every file is empty.
 */
final class Nothing implements CheckpointFileManager, CompressionCodec {
    static final Nothing INSTANCE = new Nothing();

    /** What Spark names in its messages. */
    static final Path PATH = new Path("raftlake-changelog");

    private Nothing() {}

    @Override
    public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        return new CancellableFSDataOutputStream(OutputStream.nullOutputStream()) {
            @Override
            public void cancel() {}
        };
    }

    @Override
    public FSDataInputStream open(Path path) {
        return new FSDataInputStream(new FSInputStream() {
            @Override
            public int read() {
                return -1;
            }

            @Override
            public void seek(long position) {}

            @Override
            public long getPos() {
                return 0;
            }

            @Override
            public boolean seekToNewSource(long position) {
                return false;
            }
        });
    }

    @Override
    public FileStatus[] list(Path path, PathFilter filter) {
        return new FileStatus[0];
    }

    @Override
    public void mkdirs(Path path) {}

    @Override
    public boolean exists(Path path) {
        return false;
    }

    @Override
    public void delete(Path path) {}

    @Override
    public boolean isLocal() {
        return false;
    }

    @Override
    public Path createCheckpointDirectory() {
        return PATH;
    }

    @Override
    public OutputStream compressedOutputStream(OutputStream stream) {
        return stream;
    }

    @Override
    public InputStream compressedInputStream(InputStream stream) {
        return stream;
    }
}
