package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.MemoryLogs;
import io.raftlake.spark.log.LogStartException;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Partition;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What a reader of a blob asks the log for, and when. */
@Tag("memory")
class LogBlobInputTest {
    private static final int CHUNK = FileWriter.CHUNK_BYTES;
    private static final byte[] CONTENT = bytes(30 * CHUNK + 17);
    private static final int WAIT_S = 10;

    /** One fetch: from where, and whether the thread of the test made it. */
    private record Asked(long offset, boolean isHere) {}

    /** What a log does before it answers. */
    private interface Before {
        void answer(long offset) throws IOException;
    }

    private final MemoryLogs logs = new MemoryLogs();
    private final Thread here = Thread.currentThread();
    private final List<Asked> asked = new CopyOnWriteArrayList<>();
    private BlobUri blob;

    @BeforeEach
    void write() throws IOException {
        MemoryKeySpace space = new MemoryKeySpace();
        Configuration conf = new Configuration(false);
        conf.set("raftlake.http.servers", "h:1");
        QuorumFiles files = QuorumFiles.open("p", FsSettings.of(conf), space, logs, conf, new FileSystem.Statistics("raftlake"));
        try (OutputStream out = files.create(new Path("raftlake://p/f"), true, true)) {
            out.write(CONTENT);
        }
        blob = BlobUri.parse(Node.decode(space.get("/fs/p/f").orElseThrow()).blob().uri());
    }

    private LogBlobInput open(Before before) throws IOException {
        Logs watched = (Logs) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Logs.class}, (self, method, args) -> {
            if (method.getName().equals("fetch")) {
                asked.add(new Asked((long) args[1], Thread.currentThread() == here));
                before.answer((long) args[1]);
            }
            try {
                return method.invoke(logs, args);
            } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
            }
        });
        return new LogBlobInput(watched, blob);
    }

    private List<Long> offsets() {
        return asked.stream().map(Asked::offset).toList();
    }

    @Test
    void whoReadsOnIsFetchedForAheadAndNothingIsFetchedTwice() throws IOException {
        try (LogBlobInput in = open(offset -> {})) {
            assertArrayEquals(CONTENT, in.readAllBytes());
            assertEquals(-1, in.read());
        }
        List<Long> sorted = offsets().stream().sorted().distinct().toList();
        assertEquals(sorted, offsets());
        assertTrue(asked.size() >= 5, asked.toString());
        // The first fetch tells nothing of the reader, the second one does.
        assertEquals(List.of(true, true), asked.subList(0, 2).stream().map(Asked::isHere).toList());
        assertTrue(asked.subList(2, asked.size()).stream().noneMatch(Asked::isHere), asked.toString());
        assertTrue(sorted.get(sorted.size() - 1) < blob.first() + blob.chunks(), asked.toString());
    }

    @Test
    void whoReadsHereAndThereIsNotFetchedForAhead() throws IOException {
        try (LogBlobInput in = open(offset -> {})) {
            for (int chunk : new int[] {29, 3, 15, 0}) {
                in.seek((long) chunk * CHUNK + 5);
                assertEquals(CONTENT[chunk * CHUNK + 5] & 0xFF, in.read());
            }
        }
        assertTrue(asked.stream().allMatch(Asked::isHere), asked.toString());
        long first = blob.first();
        assertEquals(List.of(first, first + 29, first + 3, first + 15, first), offsets());
    }

    @Test
    void whoTurnsBackGetsWhatStandsThere() throws IOException {
        try (LogBlobInput in = open(offset -> {})) {
            byte[] most = in.readNBytes(20 * CHUNK);
            assertArrayEquals(Arrays.copyOf(CONTENT, 20 * CHUNK), most);
            in.seek(CHUNK);
            assertArrayEquals(Arrays.copyOfRange(CONTENT, CHUNK, CONTENT.length), in.readAllBytes());
        }
    }

    @Test
    void anErrorOfAFetchAheadIsToldWhereItsPartIsRead() throws IOException {
        try (LogBlobInput in = open(offset -> {})) {
            in.readNBytes(20 * CHUNK);
        }
        long third = offsets().get(2);
        asked.clear();
        LogBlobInput in = open(offset -> {
            if (offset >= third) {
                throw new LogStartException(new Partition(blob.topic(), blob.partition()), offset, offset + 1);
            }
        });
        int readable = (int) (third - blob.first()) * CHUNK;
        assertArrayEquals(Arrays.copyOf(CONTENT, readable), in.readNBytes(readable));
        String told = assertThrows(FileNotFoundException.class, in::read).getMessage();
        assertTrue(told.contains(blob.toString()), told);
        // It is asked for again, and not remembered.
        assertThrows(FileNotFoundException.class, in::read);
        assertEquals(2, offsets().stream().filter(offset -> offset == third).count());
    }

    @Test
    void aCloseEndsTheFetchAhead() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        LogBlobInput in = open(offset -> holdUp(begun, ended));
        in.readNBytes(10 * CHUNK);
        assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
        in.close();
        assertTrue(ended.await(WAIT_S, TimeUnit.SECONDS));
    }

    @Test
    void aReaderThatIsInterruptedWaitsNoLonger() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        LogBlobInput in = open(offset -> holdUp(begun, ended));
        in.readNBytes((int) (beginOf(2) - blob.first()) * CHUNK);
        assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
        here.interrupt();
        assertThrows(InterruptedIOException.class, in::read);
        assertTrue(Thread.interrupted());
        assertTrue(ended.await(WAIT_S, TimeUnit.SECONDS));
    }

    /** Where the third fetch begins, as a reader sees that reads on. */
    private long beginOf(int fetch) throws IOException {
        List<Asked> before = List.copyOf(asked);
        asked.clear();
        try (LogBlobInput in = open(offset -> {})) {
            in.readAllBytes();
        }
        long found = offsets().get(fetch);
        asked.clear();
        asked.addAll(before);
        return found;
    }

    /** Holds a fetch ahead up until its thread is interrupted; for so long at most that the test ends. */
    private void holdUp(CountDownLatch begun, CountDownLatch ended) throws InterruptedIOException {
        if (Thread.currentThread() == here) {
            return;
        }
        begun.countDown();
        try {
            new CountDownLatch(1).await(WAIT_S, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            ended.countDown();
            throw new InterruptedIOException("held up");
        }
    }

    /** Other records stand between the chunks: an index says where they are. */
    @Test
    void aBlobWithAnIndexIsFetchedForAheadToo() throws IOException {
        Partition at = new Partition("shared", 0);
        logs.ensureTopic("shared", 1, Map.of());
        BlobUri mixed = new BlobUri("shared", 0, -1, -1, 30, 4, "mixed");
        ByteBuffer index = ByteBuffer.allocate(30 * Long.BYTES);
        byte[] large = bytes(1 << 19);
        for (int chunk = 0; chunk < 30; chunk++) {
            byte[] value = {(byte) chunk, 1, 2, 3};
            index.putLong(logs.append(at, List.of(LogRecord.of(mixed.key(chunk).getBytes(), value))));
            logs.append(at, List.of(LogRecord.of(("other/" + chunk).getBytes(), large)));
        }
        long last = logs.append(at, List.of(LogRecord.of(mixed.indexKey().getBytes(), index.array())));
        blob = mixed.written(index.getLong(0), last, 30);
        try (LogBlobInput in = open(offset -> {})) {
            byte[] content = in.readAllBytes();
            assertEquals(120, content.length);
            for (int chunk = 0; chunk < 30; chunk++) {
                assertEquals(chunk, content[4 * chunk]);
            }
        }
        assertTrue(asked.stream().anyMatch(each -> !each.isHere()), asked.toString());
        assertEquals(offsets().stream().distinct().count(), asked.size());
    }
}
