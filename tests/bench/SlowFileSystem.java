package io.raftlake.bench;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The local disk as {@code slow:///path}, where each call takes 20 ms more: a store behind a network. Only what a checkpoint
 * calls is slow. Writing and reading of an open file is not; its end is, when a store takes what was written.
 */
public final class SlowFileSystem extends RawLocalFileSystem {
    private static final long CALL_MS = 20;

    private static void call() throws IOException {
        try {
            Thread.sleep(CALL_MS);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException();
        }
    }

    @Override
    public URI getUri() {
        return URI.create("slow:///");
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        call();
        return super.open(path, bufferSize);
    }

    @Override
    public FSDataOutputStream create(Path path, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress) throws IOException {
        call();
        return new FSDataOutputStream(super.create(path, overwrite, bufferSize, replication, blockSize, progress), null) {
            private boolean isClosed;

            @Override
            public void close() throws IOException {
                if (!isClosed) {
                    isClosed = true;
                    call();
                }
                super.close();
            }
        };
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        return create(path, overwrite, bufferSize, replication, blockSize, progress);
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        call();
        return super.rename(source, target);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        call();
        return super.delete(path, recursive);
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        call();
        return super.listStatus(path);
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        call();
        return super.mkdirs(path);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        call();
        return super.getFileStatus(path);
    }
}
