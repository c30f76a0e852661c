package io.raftlake.spark.checkpoint;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.util.Comparator;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Checkpoints on a local disk, without the some twenty processes that Hadoop forks for a micro-batch ({@code chmod}, {@code
 * readlink}). A file is on the disk before it has its name. Of several who create a file one succeeds.
 *
 * <p>Spark's own managers read what this one wrote, and this one what they wrote. It writes no {@code .crc} files, and removes
 * those of files that it replaces or deletes: Hadoop would check the new content against them.
 */
public final class LocalFiles implements CheckpointFileManager {
    public static final String SCHEME = "file";

    private final RawLocalFileSystem fileSystem = new RawLocalFileSystem();
    private final Path path;

    public LocalFiles(Path path, Configuration conf) throws IOException {
        fileSystem.initialize(URI.create("file:///"), conf);
        this.path = path;
    }

    /** Whether nobody has set another file system for local files. */
    public static boolean isFor(Configuration conf) {
        String set = conf.get("fs.file.impl", LocalFileSystem.class.getName());
        return set.equals(LocalFileSystem.class.getName()) || set.equals(RawLocalFileSystem.class.getName());
    }

    private java.nio.file.Path local(Path file) {
        return fileSystem.pathToFile(file).toPath();
    }

    @Override
    public CancellableFSDataOutputStream createAtomic(Path file, boolean overwriteIfPossible) {
        try {
            java.nio.file.Path target = local(file);
            makeDirectories(target.getParent());
            return new AtomicStream(new LocalFile(target, overwriteIfPossible));
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }

    @Override
    public FSDataInputStream open(Path file) {
        try {
            return fileSystem.open(file);
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }

    @Override
    public FileStatus[] list(Path directory, PathFilter filter) {
        try {
            return fileSystem.listStatus(directory, filter);
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }

    @Override
    public void mkdirs(Path directory) {
        try {
            makeDirectories(local(directory));
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }

    /** JDK 17 takes a link to a directory for a file in the way. */
    private static void makeDirectories(java.nio.file.Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            Files.createDirectories(directory);
        }
    }

    @Override
    public boolean exists(Path file) {
        return Files.exists(local(file));
    }

    @Override
    public void delete(Path file) {
        java.nio.file.Path doomed = local(file);
        try (Stream<java.nio.file.Path> found = Files.walk(doomed)) {
            for (java.nio.file.Path each : found.sorted(Comparator.reverseOrder()).toList()) {
                Files.deleteIfExists(each);
            }
            Files.deleteIfExists(LocalFile.checksumOf(doomed));
        } catch (NoSuchFileException gone) {
            return;
        } catch (IOException error) {
            throw CheckpointFiles.sneaky(error);
        }
    }

    @Override
    public boolean isLocal() {
        return true;
    }

    @Override
    public Path createCheckpointDirectory() {
        Path whole = fileSystem.makeQualified(path);
        mkdirs(whole);
        return whole;
    }

    /** Visible when it is closed, or never. */
    private static final class AtomicStream extends CancellableFSDataOutputStream {
        private final LocalFile file;

        AtomicStream(LocalFile file) {
            super(file);
            this.file = file;
        }

        @Override
        public void cancel() {
            file.cancel();
        }
    }
}
