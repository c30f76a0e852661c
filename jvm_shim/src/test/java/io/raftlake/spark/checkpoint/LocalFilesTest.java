package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Checkpoints on a local disk, beside Spark's own manager, which keeps checksums. */
class LocalFilesTest {
    @TempDir
    java.nio.file.Path directory;

    private Path root;
    private CheckpointFileManager ours;
    private CheckpointFileManager ofSpark;

    @BeforeEach
    void begin() throws IOException {
        Configuration conf = new Configuration();
        root = new Path(directory.toUri() + "/q");
        ours = new LocalFiles(root, conf);
        ofSpark = new FileContextBasedCheckpointFileManager(root, conf);
        ofSpark.createCheckpointDirectory();
    }

    private static void write(CheckpointFileManager manager, Path path, byte[] content, boolean overwrite) throws IOException {
        try (CancellableFSDataOutputStream out = manager.createAtomic(path, overwrite)) {
            out.write(content);
        }
    }

    private static byte[] read(CheckpointFileManager manager, Path path) throws IOException {
        try (FSDataInputStream in = manager.open(path)) {
            return in.readAllBytes();
        }
    }

    private List<String> present() {
        return Arrays.stream(new File(directory.toFile(), "q").list()).sorted().toList();
    }

    @Test
    void eachReadsWhatTheOtherWrote() throws IOException {
        Path file = new Path(root, "0");
        write(ofSpark, file, bytes(700), false);
        assertArrayEquals(bytes(700), read(ours, file));
        write(ours, file, bytes(800), true);
        assertArrayEquals(bytes(800), read(ofSpark, file), "no old checksum stands beside it");
        write(ofSpark, file, bytes(900), true);
        assertArrayEquals(bytes(900), read(ours, file));
        ours.delete(file);
        assertEquals(List.of(), present());
        write(ours, file, bytes(600), false);
        assertArrayEquals(bytes(600), read(ofSpark, file));
    }

    @Test
    void whatWasGivenUpOrRefusedLeavesNothing() throws IOException {
        Path file = new Path(root, "0");
        CancellableFSDataOutputStream given = ours.createAtomic(file, false);
        given.write(bytes(100_000));
        given.cancel();
        given.cancel();
        given.close();
        assertEquals(List.of(), present());
        write(ours, file, bytes(1), false);
        CancellableFSDataOutputStream late = ours.createAtomic(file, false);
        late.write(bytes(2));
        assertThrows(FileAlreadyExistsException.class, late::close);
        assertEquals(List.of("0"), present());
        assertArrayEquals(bytes(1), read(ours, file));
    }

    @Test
    void aNameThatWasTakenMeanwhileIsNotTakenAgain() throws IOException {
        Path file = new Path(root, "0");
        CancellableFSDataOutputStream late = ours.createAtomic(file, false);
        write(ours, file, bytes(1), false);
        late.write(bytes(2));
        assertThrows(FileAlreadyExistsException.class, late::close);
        assertArrayEquals(bytes(1), read(ours, file));
    }

    @Test
    void contentLargerThanItsBufferIsWhole() throws IOException {
        for (int size : new int[] {0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 300_001}) {
            Path file = new Path(root, "of-" + size);
            try (CancellableFSDataOutputStream out = ours.createAtomic(file, false)) {
                byte[] content = bytes(size);
                int half = size / 2;
                out.write(content, 0, half);
                for (int at = half; at < Math.min(size, half + 10); at++) {
                    out.write(content[at]);
                }
                int done = Math.min(size, half + 10);
                out.write(content, done, size - done);
            }
            assertArrayEquals(bytes(size), read(ours, file));
        }
    }

    @Test
    void directoriesAreMadeAndDeletedWhole() throws IOException {
        write(ours, new Path(root, "a/b/1"), bytes(1), false);
        assertTrue(ours.exists(new Path(root, "a/b")));
        write(ofSpark, new Path(root, "a/2"), bytes(2), false);
        ours.delete(new Path(root, "a"));
        assertFalse(ours.exists(new Path(root, "a")));
        assertTrue(ours.isLocal());
    }

    @Test
    void aLinkToADirectoryIsOne() throws IOException {
        Files.createDirectory(directory.resolve("real"));
        Files.createSymbolicLink(directory.resolve("link"), directory.resolve("real"));
        CheckpointFileManager manager = new LocalFiles(new Path(directory + "/link"), new Configuration());
        Path whole = manager.createCheckpointDirectory();
        write(manager, new Path(whole, "0"), bytes(3), false);
        assertEquals(3, Files.size(directory.resolve("real/0")));
    }

    @Test
    void aPathWithoutASchemeIsALocalOne() throws IOException {
        Path bare = new Path(directory + "/bare");
        CheckpointFileManager manager = new LocalFiles(bare, new Configuration());
        Path whole = manager.createCheckpointDirectory();
        assertEquals(new Path(directory.toUri() + "/bare"), whole);
        write(manager, new Path(whole, "0"), bytes(3), false);
        assertEquals(3, Files.size(directory.resolve("bare/0")));
    }

    @Test
    void whoHasSetAnotherFileSystemKeepsIt() {
        Configuration conf = new Configuration();
        assertTrue(LocalFiles.isFor(conf));
        for (Class<?> known : List.of(LocalFileSystem.class, RawLocalFileSystem.class)) {
            conf.set("fs.file.impl", known.getName());
            assertTrue(LocalFiles.isFor(conf));
        }
        conf.set("fs.file.impl", "org.example.Mounted");
        assertFalse(LocalFiles.isFor(conf));
    }
}
