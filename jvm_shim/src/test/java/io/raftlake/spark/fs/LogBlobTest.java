package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.read;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.quorum.ListRequest;
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
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Large files whose content is in the quorum itself. */
class LogBlobTest {
    private static final int CHUNK = FileWriter.CHUNK_BYTES;
    private static final int LARGE = 2 * CHUNK + 451_424;

    private final String pipeline = Spaces.newPipeline();
    private final Configuration conf = Spaces.confWithLogs();
    private final LogBlobStore store = new LogBlobStore(Spaces.LOGS);
    private FileSystem files;

    @TempDir
    java.nio.file.Path directory;

    @BeforeEach
    void open() throws IOException {
        files = Spaces.fileSystem(conf, pipeline);
    }

    @AfterEach
    void close() throws IOException {
        files.close();
    }

    private Path at(String path) {
        return new Path("raftlake://" + pipeline + "/" + path);
    }

    private Node node(String path) throws IOException {
        return Node.decode(Spaces.SPACE.get("/fs/" + pipeline + "/" + path).orElseThrow());
    }

    private BlobUri blob(String path) throws IOException {
        return BlobUri.parse(node(path).blob().uri());
    }

    private int intents() throws IOException {
        return Spaces.SPACE.list(ListRequest.deep("/fs-blobs/" + pipeline + "/", false)).entries().size();
    }

    @Test
    void theSettingOfInlineFilesDecides() throws IOException {
        write(files, at("inline"), bytes(65_536), false);
        write(files, at("large"), bytes(65_537), false);
        assertFalse(node("inline").isBlob());
        assertTrue(node("large").isBlob());
        assertEquals(LogBlobStore.TOPIC, blob("large").topic());
        assertEquals(1, blob("large").chunks());
        assertEquals(0, intents());
        assertArrayEquals(bytes(65_537), read(files, at("large")));
        assertEquals(files.getFileStatus(at("large")).getLen(), 65_537);
    }

    @Test
    void aFileOfSeveralChunksComesBack() throws IOException {
        try (FSDataOutputStream out = files.create(at("f"))) {
            byte[] content = bytes(LARGE);
            out.write(content[0]);
            out.write(content, 1, 60_000);
            out.write(content, 60_001, LARGE - 60_001);
        }
        assertEquals(3, blob("f").chunks());
        assertArrayEquals(bytes(LARGE), read(files, at("f")));
        write(files, at("even"), bytes(2 * CHUNK), false);
        assertEquals(2, blob("even").chunks());
        assertArrayEquals(bytes(2 * CHUNK), read(files, at("even")));
    }

    @Test
    void bytesAroundTheEndOfEachChunkAreTheRightOnes() throws IOException {
        byte[] content = bytes(LARGE);
        write(files, at("f"), content, false);
        try (FSDataInputStream in = files.open(at("f"))) {
            for (int end = 2 * CHUNK; end > 0; end -= CHUNK) {
                for (int from = end - 2; from <= end + 1; from++) {
                    in.seek(from);
                    assertEquals(content[from] & 0xFF, in.read());
                    byte[] two = new byte[2];
                    in.readFully(from, two);
                    assertArrayEquals(Arrays.copyOfRange(content, from, from + 2), two);
                }
            }
            in.seek(LARGE - 1);
            assertEquals(content[LARGE - 1] & 0xFF, in.read());
            assertEquals(-1, in.read());
        }
    }

    /** More writers than partitions write their chunks in turn: an index says where the chunks are. */
    @Test
    void writersThatShareAPartitionDoNotMixTheirChunks() throws IOException {
        int writers = LogBlobStore.PARTITIONS + 1;
        List<FSDataOutputStream> streams = new ArrayList<>();
        for (int number = 0; number < writers; number++) {
            streams.add(files.create(at("w" + number)));
        }
        for (int chunk = 0; chunk < 3; chunk++) {
            for (int number = 0; number < writers; number++) {
                byte[] content = bytes(CHUNK * 3 + number);
                streams.get(number).write(content, chunk * CHUNK, chunk == 2 ? CHUNK + number : CHUNK);
            }
        }
        int withIndex = 0;
        for (int number = 0; number < writers; number++) {
            streams.get(number).close();
            withIndex += blob("w" + number).isContiguous() ? 0 : 1;
        }
        assertTrue(withIndex >= 2, "two of them share a partition");
        for (int number = 0; number < writers; number++) {
            byte[] content = bytes(CHUNK * 3 + number);
            assertArrayEquals(content, read(files, at("w" + number)));
            try (FSDataInputStream in = files.open(at("w" + number))) {
                byte[] some = new byte[20];
                in.readFully(2 * CHUNK - 10, some);
                assertArrayEquals(Arrays.copyOfRange(content, 2 * CHUNK - 10, 2 * CHUNK + 10), some);
                in.readFully(CHUNK - 10, some);
                assertArrayEquals(Arrays.copyOfRange(content, CHUNK - 10, CHUNK + 10), some);
            }
        }
    }

    @Test
    void parallelWritersEachHaveTheirContent() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try {
            List<Callable<Void>> writers = new ArrayList<>();
            for (int number = 0; number < 8; number++) {
                int length = LARGE + number;
                Path file = at("p" + number);
                writers.add(() -> {
                    write(files, file, bytes(length), false);
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(writers)) {
                done.get();
            }
        } finally {
            threads.shutdownNow();
        }
        for (int number = 0; number < 8; number++) {
            assertArrayEquals(bytes(LARGE + number), read(files, at("p" + number)));
        }
        assertEquals(0, intents());
    }

    @Test
    void aRenameMovesThePointerOnly() throws IOException {
        write(files, at("d/f"), bytes(LARGE), false);
        BlobUri before = blob("d/f");
        files.rename(at("d"), at("e"));
        assertEquals(before, blob("e/f"));
        assertArrayEquals(bytes(LARGE), read(files, at("e/f")));
    }

    @Test
    void aLosingWriterAndAnAbortedOneLeaveNoIntent() throws IOException {
        FSDataOutputStream aborted = files.create(at("f"));
        aborted.write(bytes(LARGE));
        assertEquals(1, intents());
        aborted.abort();
        assertEquals(0, intents());
        FSDataOutputStream late = files.create(at("f"), false);
        late.write(bytes(LARGE));
        write(files, at("f"), bytes(3), false);
        assertThrows(FileAlreadyExistsException.class, late::close);
        assertEquals(0, intents());
        assertArrayEquals(bytes(3), read(files, at("f")));
    }

    @Test
    void aWriterWhoseBlobWasCollectedCannotPutItsPointer() throws IOException {
        FSDataOutputStream slow = files.create(at("f"));
        slow.write(bytes(LARGE));
        assertEquals(1, new BlobCollector(Spaces.SPACE, store, 1).collect(pipeline, System.currentTimeMillis() + 10_000));
        String told = assertThrows(IOException.class, slow::close).getMessage();
        assertTrue(told.contains("raftlake.fs.orphan.age.ms"), told);
        assertFalse(files.exists(at("f")));
        assertEquals(0, intents());
    }

    @Test
    void eachFileIsReadWhereItWasWritten() throws IOException {
        write(files, at("quorum"), bytes(LARGE), false);
        Configuration both = Spaces.confWithLogs();
        both.set("raftlake.fs.base.uri", directory.toUri().toString());
        both.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        both.setBoolean("fs.file.impl.disable.cache", true);
        try (FileSystem ofBoth = Spaces.fileSystem(both, pipeline)) {
            write(ofBoth, at("other"), bytes(LARGE), false);
            assertFalse(node("other").blob().uri().startsWith("quorum:"), "a base that is set comes first");
            assertArrayEquals(bytes(LARGE), read(ofBoth, at("quorum")));
            assertArrayEquals(bytes(LARGE), read(ofBoth, at("other")));
            String told = assertThrows(IOException.class, () -> files.open(at("other"))).getMessage();
            assertTrue(told.contains("raftlake.fs.base.uri"), told);
            Configuration none = Spaces.conf();
            try (FileSystem ofNone = Spaces.fileSystem(none, pipeline)) {
                String missing = assertThrows(IOException.class, () -> ofNone.open(at("quorum"))).getMessage();
                assertTrue(missing.contains("raftlake.bootstrap.servers"), missing);
            }
            // Each is deleted where it is.
            ofBoth.delete(at("quorum"), false);
            ofBoth.delete(at("other"), false);
        }
        assertEquals(0, intents());
    }
}
