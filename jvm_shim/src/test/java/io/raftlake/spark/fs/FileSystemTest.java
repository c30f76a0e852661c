package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.names;
import static io.raftlake.spark.kit.Files.read;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What the file system promises, on whatever key-value space the run has. Hadoop's own contract tests ask for the rest. */
class FileSystemTest {
    private final String pipeline = Spaces.newPipeline();
    private final Path root = new Path("raftlake://" + pipeline + "/");
    private final Configuration conf = Spaces.conf();
    private FileSystem files;

    @BeforeEach
    void open() throws IOException {
        files = Spaces.fileSystem(conf, pipeline);
    }

    @AfterEach
    void close() throws IOException {
        files.close();
    }

    private Path at(String path) {
        return new Path(root, path);
    }

    @Test
    void aFileIsSeenWhenItIsClosed() throws IOException {
        FSDataOutputStream out = files.create(at("d/f"));
        out.write(bytes(100));
        out.flush();
        assertFalse(files.exists(at("d/f")));
        assertFalse(files.exists(at("d")));
        out.close();
        assertArrayEquals(bytes(100), read(files, at("d/f")));
        FileStatus status = files.getFileStatus(at("d/f"));
        assertEquals(100, status.getLen());
        assertEquals(at("d/f"), status.getPath());
        assertTrue(Math.abs(status.getModificationTime() - System.currentTimeMillis()) < 60_000);
        out.close();
    }

    @Test
    void ofSeveralCreatorsOneWins() throws Exception {
        int creators = 8;
        List<FSDataOutputStream> streams = new ArrayList<>();
        for (int i = 0; i < creators; i++) {
            FSDataOutputStream out = files.create(at("race/f"), false);
            out.write(i);
            streams.add(out);
        }
        List<Callable<Integer>> closings = new ArrayList<>();
        for (int i = 0; i < creators; i++) {
            int number = i;
            closings.add(() -> {
                try {
                    streams.get(number).close();
                    return number;
                } catch (FileAlreadyExistsException lost) {
                    return -1;
                }
            });
        }
        ExecutorService threads = Executors.newFixedThreadPool(creators);
        List<Integer> winners = new ArrayList<>();
        for (Future<Integer> closing : threads.invokeAll(closings)) {
            if (closing.get() >= 0) {
                winners.add(closing.get());
            }
        }
        threads.shutdown();
        assertEquals(1, winners.size(), winners.toString());
        assertArrayEquals(new byte[] {winners.get(0).byteValue()}, read(files, at("race/f")));
    }

    @Test
    void whoOverwritesLastWins() throws IOException {
        write(files, at("f"), bytes(5), false);
        FSDataOutputStream out = files.create(at("f"), true);
        out.write(bytes(7));
        write(files, at("f"), bytes(6), true);
        out.close();
        assertArrayEquals(bytes(7), read(files, at("f")));
        assertThrows(FileAlreadyExistsException.class, () -> files.create(at("f"), false));
    }

    @Test
    void anAbortedStreamLeavesNothing() throws IOException {
        FSDataOutputStream out = files.create(at("d/f"));
        out.write(bytes(100));
        assertTrue(out.hasCapability("fs.capability.outputstream.abortable"));
        assertFalse(out.abort().alreadyClosed());
        out.close();
        assertFalse(files.exists(at("d")));
        assertTrue(out.abort().alreadyClosed());
    }

    @Test
    void aDirectoryThatGoesBeforeTheFileIsClosed() throws IOException {
        files.mkdirs(at("d"));
        FSDataOutputStream recursive = files.create(at("d/f"));
        FSDataOutputStream strict = files.createNonRecursive(at("d/g"), false, 4096, (short) 1, 1, null);
        files.delete(at("d"), true);
        assertThrows(FileNotFoundException.class, strict::close);
        recursive.close();
        assertEquals("[f]", names(files, at("d")));
        assertThrows(FileNotFoundException.class,
                () -> files.createNonRecursive(at("none/g"), false, 4096, (short) 1, 1, null));
    }

    @Test
    void aDirectoryThatBecomesAFileBeforeTheFileIsClosed() throws IOException {
        FSDataOutputStream out = files.create(at("d/e/f"));
        write(files, at("d"), bytes(1), false);
        assertThrows(ParentNotDirectoryException.class, out::close);
        assertEquals("[d]", names(files, root));
    }

    @Test
    void readingFromAnywhere() throws IOException {
        byte[] content = bytes(3000);
        write(files, at("f"), content, false);
        try (FSDataInputStream in = files.open(at("f"))) {
            in.seek(2999);
            assertEquals(content[2999] & 0xFF, in.read());
            assertEquals(-1, in.read());
            byte[] some = new byte[10];
            in.readFully(5, some);
            assertArrayEquals(java.util.Arrays.copyOfRange(content, 5, 15), some);
            assertEquals(3000, in.getPos());
            assertThrows(EOFException.class, () -> in.seek(3001));
            assertThrows(EOFException.class, () -> in.readFully(2995, some));
            in.seek(0);
            assertEquals(2000, in.skip(2000));
            assertEquals(1000, in.available());
        }
    }

    @Test
    void namesThatNeedCare() throws IOException {
        for (String name : List.of("a b", "x=1%20", "ä", "\uD83D\uDE00", ".offsets.tmp", "a:b", "100%", "q?#&+")) {
            Path path = new Path("raftlake", pipeline, "/names/" + name);
            write(files, path, bytes(3), false);
            assertEquals(path, files.getFileStatus(path).getPath());
        }
        assertEquals(8, files.listStatus(at("names")).length);
        for (FileStatus status : files.listStatus(at("names"))) {
            assertArrayEquals(bytes(3), read(files, status.getPath()));
        }
    }

    @Test
    void aPathThatEscapesOrIsTooLong() {
        assertThrows(PathIOException.class, () -> files.exists(new Path("raftlake", pipeline, "/../x")));
        assertThrows(PathIOException.class, () -> files.mkdirs(at("x".repeat(1100))));
        assertThrows(IllegalArgumentException.class, () -> files.exists(new Path("raftlake://other-" + pipeline + "/x")));
    }

    @Test
    void pipelinesThatDifferInCaseAreTwo() throws IOException {
        String upper = pipeline.toUpperCase(java.util.Locale.ROOT);
        write(files, new Path("raftlake://" + upper + "/f"), bytes(1), false);
        assertFalse(files.exists(at("f")));
        try (FileSystem other = Spaces.fileSystem(conf, upper)) {
            assertEquals("[f]", names(other, new Path("/")));
        }
    }

    @Test
    void relativePathsLieInTheWorkingDirectory() throws IOException {
        write(files, new Path("f"), bytes(1), false);
        assertTrue(files.exists(at("f")));
        files.setWorkingDirectory(new Path("w"));
        write(files, new Path("g"), bytes(1), false);
        assertTrue(files.exists(at("w/g")));
    }

    @Test
    void filesAndDirectoriesAreRenamed() throws IOException {
        write(files, at("a/x/f"), bytes(10), false);
        write(files, at("a/g"), bytes(11), false);
        assertTrue(files.rename(at("a"), at("b")));
        assertFalse(files.exists(at("a")));
        assertFalse(files.exists(at("a/x/f")));
        assertArrayEquals(bytes(10), read(files, at("b/x/f")));
        assertTrue(files.rename(at("b/g"), at("h")));
        assertArrayEquals(bytes(11), read(files, at("h")));
        assertFalse(files.rename(at("h"), at("none/h")));
        assertFalse(files.rename(at("h"), at("b/x/f")), "onto a file");
        assertFalse(files.rename(at("h"), at("b/x/f/h")), "under a file");
        assertFalse(files.rename(at("b"), at("b/x/b")), "into itself");
        assertFalse(files.rename(root, at("r")));
        assertTrue(files.rename(at("h"), at("b/x")), "into a directory");
        assertEquals("[f, h]", names(files, at("b/x")));
        assertThrows(IOException.class, () -> files.rename(at("b"), new Path("raftlake://" + pipeline.toUpperCase(
                java.util.Locale.ROOT) + "/b")));
    }

    @Test
    void aNameThatOnlyBeginsLikeADirectoryIsNotInIt() throws IOException {
        write(files, at("a/f"), bytes(1), false);
        write(files, at("ab/f"), bytes(1), false);
        files.rename(at("a"), at("c"));
        assertTrue(files.exists(at("ab/f")));
        files.delete(at("c"), true);
        assertEquals("[ab]", names(files, root));
    }

    @Test
    void deleting() throws IOException {
        write(files, at("a/x/f"), bytes(10), false);
        write(files, at("a/g"), bytes(10), false);
        assertThrows(PathIsNotEmptyDirectoryException.class, () -> files.delete(at("a"), false));
        assertTrue(files.delete(at("a/g"), false));
        assertFalse(files.delete(at("a/g"), false));
        assertTrue(files.delete(at("a/x"), true));
        assertTrue(files.delete(at("a"), false));
        assertEquals("[]", names(files, root));
    }

    @Test
    void whatIsNotSupportedSaysSo() throws IOException {
        write(files, at("f"), bytes(1), false);
        assertThrows(UnsupportedOperationException.class, () -> files.append(at("f")));
        assertThrows(UnsupportedOperationException.class, () -> files.setTimes(at("f"), 1, 1));
        assertThrows(FileNotFoundException.class, () -> files.setTimes(at("none"), 1, 1));
        assertThrows(UnsupportedOperationException.class, () -> files.truncate(at("f"), 0));
    }

    @Test
    void theChecksumIsThatOfTheContent() throws IOException {
        write(files, at("f"), "123456789".getBytes(java.nio.charset.StandardCharsets.US_ASCII), false);
        write(files, at("g"), "123456789".getBytes(java.nio.charset.StandardCharsets.US_ASCII), false);
        write(files, at("h"), bytes(9), false);
        FileChecksum checksum = files.getFileChecksum(at("f"));
        assertEquals("COMPOSITE-CRC32C", checksum.getAlgorithmName());
        assertArrayEquals(new byte[] {(byte) 0xE3, 0x06, (byte) 0x92, (byte) 0x83}, checksum.getBytes());
        assertEquals(checksum, files.getFileChecksum(at("g")));
        assertNotEquals(checksum, files.getFileChecksum(at("h")));
    }

    @Test
    @SuppressWarnings("deprecation")
    void bytesAndOperationsAreCounted() throws IOException {
        write(files, at("f"), bytes(10), false);
        FileSystem.Statistics statistics = FileSystem.getStatistics("raftlake", files.getClass());
        long written = statistics.getBytesWritten();
        long read = statistics.getBytesRead();
        long changes = statistics.getWriteOps();
        write(files, at("g"), bytes(100), false);
        read(files, at("g"));
        assertEquals(written + 100, statistics.getBytesWritten());
        assertEquals(read + 100, statistics.getBytesRead());
        assertEquals(changes + 1, statistics.getWriteOps());
    }

    @Test
    void aFileTooLargeForAKeyNamesTheSetting() throws IOException {
        write(files, at("largest"), bytes(Node.INLINE_BYTES_MAX), false);
        assertArrayEquals(bytes(Node.INLINE_BYTES_MAX), read(files, at("largest")));
        FSDataOutputStream out = files.create(at("f"));
        out.write(bytes(Node.INLINE_BYTES_MAX));
        String told = assertThrows(IOException.class, () -> out.write(1)).getMessage();
        assertTrue(told.contains("raftlake.fs.base.uri"), told);
        assertThrows(IOException.class, out::close);
        assertFalse(files.exists(at("f")));
    }
}
