package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.MemoryLogs;
import io.raftlake.spark.kit.WatchedLogs;
import io.raftlake.spark.kit.WatchedLogs.Asked;
import io.raftlake.spark.kit.WatchedLogs.Before;
import io.raftlake.spark.log.LogStartException;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Partition;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
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

    private final MemoryLogs logs = new MemoryLogs();
    private final Thread here = Thread.currentThread();
    private WatchedLogs watched;
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
        watched = new WatchedLogs(logs, before);
        return new LogBlobInput(watched.logs(), blob);
    }

    private LogBlobInput open() throws IOException {
        return open(call -> {});
    }

    private List<Long> offsets() {
        return watched.fetches().stream().map(Asked::offset).toList();
    }

    @Test
    void whoReadsOnIsFetchedForAheadAndNothingIsFetchedTwice() throws IOException {
        try (LogBlobInput in = open()) {
            assertArrayEquals(CONTENT, in.readAllBytes());
            assertEquals(-1, in.read());
        }
        List<Long> sorted = offsets().stream().sorted().distinct().toList();
        assertEquals(sorted, offsets());
        List<Asked> asked = watched.fetches();
        assertTrue(asked.size() >= 5, asked.toString());
        // The first fetch tells nothing of the reader. The step to the second chunk does.
        assertTrue(asked.get(0).isHere());
        assertTrue(asked.stream().skip(1).noneMatch(Asked::isHere), asked.toString());
        assertTrue(sorted.get(sorted.size() - 1) < blob.first() + blob.chunks(), asked.toString());
    }

    @Test
    void whoReadsHereAndThereIsNotFetchedForAhead() throws IOException {
        try (LogBlobInput in = open()) {
            for (int chunk : new int[] {29, 3, 15, 0}) {
                in.seek((long) chunk * CHUNK + 5);
                assertEquals(CONTENT[chunk * CHUNK + 5] & 0xFF, in.read());
            }
        }
        assertTrue(watched.fetches().stream().allMatch(Asked::isHere), watched.fetches().toString());
        long first = blob.first();
        assertEquals(List.of(first, first + 29, first + 3, first + 15, first), offsets());
    }

    @Test
    void theStepToTheSecondChunkBeginsTheFetchAhead() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        try (LogBlobInput in = open(call -> holdUp(begun, begun))) {
            in.readNBytes(CHUNK);
            assertEquals(List.of(blob.first()), offsets());
            in.read();
            assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
            assertEquals(List.of(true, false), watched.fetches().stream().map(Asked::isHere).toList());
        }
    }

    @Test
    void whoTurnsBackGetsWhatStandsThere() throws IOException {
        try (LogBlobInput in = open()) {
            byte[] most = in.readNBytes(20 * CHUNK);
            assertArrayEquals(Arrays.copyOf(CONTENT, 20 * CHUNK), most);
            in.seek(CHUNK);
            assertArrayEquals(Arrays.copyOfRange(CONTENT, CHUNK, CONTENT.length), in.readAllBytes());
        }
    }

    @Test
    void anErrorOfAFetchAheadIsToldWhereItsPartIsRead() throws IOException {
        try (LogBlobInput in = open()) {
            in.readNBytes(20 * CHUNK);
        }
        long third = offsets().get(2);
        LogBlobInput in = open(call -> {
            if (call.offset() >= third) {
                throw new LogStartException(new Partition(blob.topic(), blob.partition()), call.offset(), call.offset() + 1);
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
        LogBlobInput in = open(call -> holdUp(begun, ended));
        in.readNBytes(3 * CHUNK);
        assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
        in.close();
        assertTrue(ended.await(WAIT_S, TimeUnit.SECONDS));
    }

    @Test
    void aReaderThatIsInterruptedWaitsNoLonger() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        try (LogBlobInput whole = open()) {
            whole.readAllBytes();
        }
        long second = offsets().get(1);
        LogBlobInput in = open(call -> holdUp(begun, ended));
        in.readNBytes((int) (second - blob.first()) * CHUNK);
        assertTrue(begun.await(WAIT_S, TimeUnit.SECONDS));
        here.interrupt();
        assertThrows(InterruptedIOException.class, in::read);
        assertTrue(Thread.interrupted());
        assertTrue(ended.await(WAIT_S, TimeUnit.SECONDS));
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
        try (LogBlobInput in = open()) {
            byte[] content = in.readAllBytes();
            assertEquals(120, content.length);
            for (int chunk = 0; chunk < 30; chunk++) {
                assertEquals(chunk, content[4 * chunk]);
            }
        }
        List<Asked> asked = watched.fetches();
        assertTrue(asked.stream().anyMatch(each -> !each.isHere()), asked.toString());
        assertEquals(offsets().stream().distinct().count(), asked.size());
    }
}
