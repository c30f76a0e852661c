package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.MemoryLogs;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What blobs leave in the topic: after each story compaction must be able to remove all that no file points to. */
@Tag("memory")
class LogBlobRoomTest {
    private static final int LARGE = 2 * FileWriter.CHUNK_BYTES + 10;
    private static final String PIPELINE = "p";

    private final MemoryLogs logs = new MemoryLogs();
    private final MemoryKeySpace space = new MemoryKeySpace();
    private final FileSystem.Statistics statistics = new FileSystem.Statistics("raftlake");
    private QuorumFiles files;

    @BeforeEach
    void open() throws IOException {
        files = files(logs);
    }

    private QuorumFiles files(Logs over) throws IOException {
        Configuration conf = new Configuration(false);
        conf.set("raftlake.http.servers", "h:1");
        return QuorumFiles.open(PIPELINE, FsSettings.of(conf), space, over, conf, statistics);
    }

    private static Path at(String path) {
        return new Path("raftlake://" + PIPELINE + "/" + path);
    }

    private void write(String path, int length) throws IOException {
        try (OutputStream out = files.create(at(path), true, true)) {
            out.write(bytes(length));
        }
    }

    private byte[] read(String path) throws IOException {
        try (var in = files.open(at(path))) {
            return in.readAllBytes();
        }
    }

    /** Keys that stand in the topic after compaction. */
    private List<String> left() throws IOException {
        logs.compact(LogBlobStore.TOPIC);
        List<String> keys = new ArrayList<>();
        for (int partition = 0; partition < LogBlobStore.PARTITIONS; partition++) {
            Logs.Partition from = new Logs.Partition(LogBlobStore.TOPIC, partition);
            for (long offset = 0; offset < logs.end(from); ) {
                Logs.Fetched got = logs.fetch(from, offset, 1 << 20, 0);
                got.records().forEach(each -> keys.add(new String(each.record().key())));
                offset = got.nextOffset();
            }
        }
        return keys;
    }

    private int intents() {
        return space.list(ListRequest.deep("/fs-blobs/", false)).entries().size();
    }

    private int collect() throws IOException {
        return new BlobCollector(space, new LogBlobStore(logs), 1).collect(PIPELINE, System.currentTimeMillis() + 10_000);
    }

    private BlobUri blob(String path) throws IOException {
        return BlobUri.parse(Node.decode(space.get("/fs/" + PIPELINE + "/" + path).orElseThrow()).blob().uri());
    }

    @Test
    void theTopicIsCompacted() throws IOException {
        write("f", LARGE);
        assertEquals("compact", logs.configs(LogBlobStore.TOPIC).get("cleanup.policy"));
        assertEquals("0", logs.configs(LogBlobStore.TOPIC).get("min.cleanable.dirty.ratio"), "tombstones alone are reason enough");
        assertEquals(3, left().size());
    }

    @Test
    void deletedAndReplacedFilesLeaveNothing() throws IOException {
        write("f", LARGE);
        write("f", LARGE + 1);
        assertEquals(3, left().size());
        assertArrayEquals(bytes(LARGE + 1), read("f"));
        write("d/g", LARGE);
        files.delete(at("f"), false);
        files.delete(at("d"), true);
        assertEquals(List.of(), left());
        assertEquals(0, intents());
    }

    @Test
    void theIndexOfAMixedBlobGoesToo() throws IOException {
        logs.ensureTopic(LogBlobStore.TOPIC, LogBlobStore.PARTITIONS, LogBlobStore.CONFIGS);
        LogBlobStore store = new LogBlobStore(logs);
        BlobUri one = new BlobUri(LogBlobStore.TOPIC, 2, -1, -1, 64, 10, "one");
        BlobUri two = new BlobUri(LogBlobStore.TOPIC, 2, -1, -1, 64, 10, "two");
        BlobStore.Output first = store.create(one.toString(), no -> {});
        BlobStore.Output second = store.create(two.toString(), no -> {});
        for (int chunk = 0; chunk < 3; chunk++) {
            // A chunk is sent when it is full, and awaited when the next one is.
            first.write(bytes(10));
            second.write(bytes(10));
        }
        first.close();
        second.close();
        assertTrue(first.uri().contains("/3x10/one"), first.uri());
        try (FSDataInputStream in = store.open(first.uri())) {
            in.seek(10);
            byte[] chunk = new byte[10];
            in.readFully(chunk);
            assertArrayEquals(bytes(10), chunk);
            in.readFully(chunk);
            assertEquals(-1, in.read());
        }
        assertTrue(store.delete(first.uri()));
        assertTrue(store.delete(second.uri()));
        assertEquals(List.of(), left());
    }

    @Test
    void anAbortedWriterLeavesNothing() throws IOException {
        OutputStream out = files.create(at("f"), true, true);
        out.write(bytes(LARGE));
        ((Abortable) out).abort();
        assertEquals(List.of(), left());
        assertEquals(0, intents());
    }

    /** The stream is never closed: its process died. */
    @Test
    void aCrashBetweenBlobAndPointerIsCollected() throws IOException {
        OutputStream dead = files.create(at("f"), true, true);
        dead.write(bytes(LARGE));
        write("alive", LARGE);
        assertFalse(files.exists(at("f")));
        assertEquals(1, collect());
        assertEquals(3, left().size());
        assertArrayEquals(bytes(LARGE), read("alive"));
        assertEquals(0, intents());
    }

    @Test
    void aBlobBeyondItsAnnouncementIsAnnouncedAnew() throws IOException {
        logs.ensureTopic(LogBlobStore.TOPIC, LogBlobStore.PARTITIONS, LogBlobStore.CONFIGS);
        LogBlobStore store = new LogBlobStore(logs);
        List<String> announced = new ArrayList<>();
        BlobUri uri = new BlobUri(LogBlobStore.TOPIC, 1, -1, -1, 4, 10, "grown");
        BlobStore.Output out = store.create(uri.toString(), announced::add);
        out.write(bytes(40));
        assertEquals(List.of(), announced);
        out.write(bytes(10));
        assertEquals(List.of(uri.upTo(16).toString()), announced);
        out.write(bytes(125));
        assertEquals(uri.upTo(64).toString(), announced.get(1));
        out.close();
        assertEquals(18, left().size());
        assertTrue(store.delete(announced.get(1)), "as the collector does, who knows the announcement alone");
        assertEquals(List.of(), left());
    }

    @Test
    void aWriterThatGrowsHoldsItsIntentAndIsFenced() throws IOException {
        OutputStream out = files.create(at("f"), true, true);
        int announced = LogBlobStore.CHUNKS_ANNOUNCED * FileWriter.CHUNK_BYTES;
        out.write(bytes(FileWriter.CHUNK_BYTES));
        byte[] rest = new byte[FileWriter.CHUNK_BYTES];
        for (int chunk = 1; chunk <= LogBlobStore.CHUNKS_ANNOUNCED; chunk++) {
            out.write(rest);
        }
        String value = new String(space.list(ListRequest.deep("/fs-blobs/", true)).entries().get(0).value());
        assertTrue(value.contains("/256x524288/"), value);
        out.close();
        assertEquals(announced + FileWriter.CHUNK_BYTES, files.status(at("f")).getLen());
        assertEquals(LogBlobStore.CHUNKS_ANNOUNCED + 1, blob("f").chunks());
        assertEquals(0, intents());
        OutputStream slow = files.create(at("g"), true, true);
        slow.write(bytes(LARGE));
        collect();
        IOException told = assertThrows(IOException.class, () -> {
            for (int chunk = 0; chunk <= LogBlobStore.CHUNKS_ANNOUNCED; chunk++) {
                slow.write(rest);
            }
        });
        assertTrue(told.getMessage().contains("raftlake.fs.orphan.age.ms"), told.getMessage());
        assertFalse(files.exists(at("g")));
        files.delete(at("f"), false);
        assertEquals(List.of(), left(), "what was written behind the collector's back goes with the failure");
    }

    @Test
    void aBlobThatIsGoneIsNoMissingFile() throws IOException {
        write("f", LARGE);
        new LogBlobStore(logs).delete(blob("f").toString());
        left();
        PathIOException missing = assertThrows(PathIOException.class, () -> files.open(at("f")));
        assertTrue(missing.getMessage().contains("is missing") && missing.getMessage().contains("quorum:"), missing.getMessage());
        logs.deleteTopic(LogBlobStore.TOPIC);
        assertThrows(PathIOException.class, () -> files.open(at("f")));
    }

    /** The third append of a chunk ends without an answer: its bytes may come later, so only the collector may remove them. */
    @Test
    void anAppendOfUnknownOutcomeIsLeftToTheCollector() throws IOException {
        AtomicInteger appends = new AtomicInteger();
        Logs doubtful = (Logs) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Logs.class}, (self, method, args) -> {
            try {
                Object done = method.invoke(logs, args);
                if (method.getName().equals("append") && appends.incrementAndGet() == 3) {
                    throw new UnknownOutcomeException("scripted");
                }
                return done;
            } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
            }
        });
        QuorumFiles unsure = files(doubtful);
        OutputStream out = unsure.create(at("f"), true, true);
        out.write(bytes(LARGE));
        assertThrows(UnknownOutcomeException.class, out::close);
        assertFalse(unsure.exists(at("f")));
        assertEquals(3, left().size());
        assertEquals(1, intents());
        assertEquals(1, collect());
        assertEquals(List.of(), left());
        assertEquals(0, intents());
    }

    @Test
    void namesAreReadAsTheyAreWritten() {
        BlobUri announced = new BlobUri("t", 3, -1, -1, 64, 512, "an-id");
        assertEquals("quorum:t/3/64x512/an-id", announced.toString());
        assertEquals(announced, BlobUri.parse(announced.toString()));
        BlobUri written = announced.written(10, 12, 3);
        assertEquals("quorum:t/3/10-12/3x512/an-id", written.toString());
        assertEquals(written, BlobUri.parse(written.toString()));
        assertTrue(written.isContiguous());
        assertFalse(announced.written(10, 13, 3).isContiguous());
        for (String wrong : List.of("quorum:t/3/an-id", "quorum:t/x/1x1/i", "file:/t/3/1x1/i", "quorum:t/3/1x0/i", "quorum:t/3/1x1/")) {
            assertNull(BlobUri.parse(wrong), wrong);
        }
        assertThrows(FileNotFoundException.class, () -> new LogBlobStore(logs).open(announced.toString()));
    }
}
