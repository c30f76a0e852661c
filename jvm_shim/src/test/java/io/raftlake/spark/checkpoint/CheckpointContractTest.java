package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.QuorumCheckpointFileManager;
import io.raftlake.spark.kit.Spaces;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What Spark asks of a file manager: of ours in the quorum and on a local disk, of Spark's own through ours, and of Spark's own. */
class CheckpointContractTest {
    enum Kind {
        RAFTLAKE,
        LOCAL,
        OTHER_SCHEME,
        SPARK
    }

    /** A file system that somebody has set. */
    public static final class OtherLocal extends LocalFileSystem {}

    private final Configuration conf = Spaces.conf();
    private final String pipeline = Spaces.newPipeline();

    @TempDir
    java.nio.file.Path directory;

    private Path root;

    private CheckpointFileManager manager(Kind kind) throws IOException {
        if (kind == Kind.OTHER_SCHEME) {
            // Whoever has a file system of their own for local files keeps it.
            conf.setClass("fs.file.impl", OtherLocal.class, FileSystem.class);
        }
        root = new Path(kind == Kind.RAFTLAKE ? "raftlake://" + pipeline + "/q" : directory.toUri() + "/q");
        CheckpointFileManager manager = kind == Kind.SPARK
                ? new FileContextBasedCheckpointFileManager(root, conf)
                : new QuorumCheckpointFileManager(root, conf);
        assertEquals(root, manager.createCheckpointDirectory());
        return manager;
    }

    private static void write(CheckpointFileManager manager, Path path, byte[] content, boolean overwrite)
            throws IOException {
        try (CancellableFSDataOutputStream out = manager.createAtomic(path, overwrite)) {
            out.write(content);
        }
    }

    private static byte[] read(CheckpointFileManager manager, Path path) throws IOException {
        try (FSDataInputStream in = manager.open(path)) {
            return in.readAllBytes();
        }
    }

    private static List<String> names(FileStatus[] found) {
        return Arrays.stream(found).map(status -> status.getPath().getName()).filter(name -> !name.startsWith(".")).sorted().toList();
    }

    @ParameterizedTest
    @EnumSource
    void aFileIsSeenWhenItIsClosed(Kind kind) throws IOException {
        CheckpointFileManager manager = manager(kind);
        Path file = new Path(root, "0");
        CancellableFSDataOutputStream out = manager.createAtomic(file, false);
        out.write(bytes(1000));
        assertFalse(manager.exists(file));
        out.close();
        assertTrue(manager.exists(file));
        assertArrayEquals(bytes(1000), read(manager, file));
        out.close();
        out.cancel();
        assertArrayEquals(bytes(1000), read(manager, file));
    }

    @ParameterizedTest
    @EnumSource
    void aCancelledFileIsNeverSeen(Kind kind) throws IOException {
        CheckpointFileManager manager = manager(kind);
        Path file = new Path(root, "0");
        CancellableFSDataOutputStream out = manager.createAtomic(file, true);
        out.write(bytes(100));
        out.cancel();
        out.close();
        assertFalse(manager.exists(file));
        assertEquals(List.of(), names(manager.list(root)));
    }

    @ParameterizedTest
    @EnumSource
    void aFileThatExistsIsReplacedOnlyWhereThatIsAskedFor(Kind kind) throws IOException {
        CheckpointFileManager manager = manager(kind);
        Path file = new Path(root, "0");
        write(manager, file, bytes(1), false);
        CancellableFSDataOutputStream second = manager.createAtomic(file, false);
        second.write(bytes(2));
        assertThrows(FileAlreadyExistsException.class, second::close);
        second.cancel();
        assertArrayEquals(bytes(1), read(manager, file));
        write(manager, file, bytes(3), true);
        assertArrayEquals(bytes(3), read(manager, file));
        write(manager, new Path(root, "1"), bytes(4), true);
        assertEquals(List.of("0", "1"), names(manager.list(root)));
    }

    @ParameterizedTest
    @EnumSource
    void listsAndDeletes(Kind kind) throws IOException {
        CheckpointFileManager manager = manager(kind);
        Path deep = new Path(root, "a/b");
        manager.mkdirs(deep);
        manager.mkdirs(deep);
        write(manager, new Path(deep, "1"), bytes(1), false);
        write(manager, new Path(deep, "2"), bytes(2), false);
        assertEquals(List.of("2"), names(manager.list(deep, path -> path.getName().equals("2"))));
        assertEquals(List.of("a"), names(manager.list(root)));
        assertThrows(FileNotFoundException.class, () -> manager.list(new Path(root, "none")));
        assertThrows(FileNotFoundException.class, () -> manager.open(new Path(root, "none")));
        manager.delete(new Path(root, "none"));
        manager.delete(new Path(deep, "1"));
        assertEquals(List.of("2"), names(manager.list(deep)));
        manager.delete(new Path(root, "a"));
        assertFalse(manager.exists(deep));
    }

    /** Spark's own managers look whether a local file is there, and then rename to it: two of several may both succeed with them. */
    @ParameterizedTest
    @EnumSource(names = {"RAFTLAKE", "LOCAL"})
    void ofSeveralWhoCreateAFileOneSucceeds(Kind kind) throws Exception {
        CheckpointFileManager manager = manager(kind);
        Path file = new Path(root, "0");
        int writers = 8;
        ExecutorService threads = Executors.newFixedThreadPool(writers);
        try {
            List<Callable<Integer>> tries = new ArrayList<>();
            for (int writer = 1; writer <= writers; writer++) {
                int length = writer;
                tries.add(() -> {
                    try {
                        write(manager, file, bytes(length), false);
                        return length;
                    } catch (FileAlreadyExistsException taken) {
                        return 0;
                    }
                });
            }
            int won = 0;
            for (Future<Integer> one : threads.invokeAll(tries)) {
                if (one.get() > 0) {
                    assertEquals(0, won, "two succeeded");
                    won = one.get();
                }
            }
            assertArrayEquals(bytes(won), read(manager, file));
        } finally {
            threads.shutdownNow();
        }
    }
}
