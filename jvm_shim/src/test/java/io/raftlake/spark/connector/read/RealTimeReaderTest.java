package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.kit.BatchBytes;
import io.raftlake.spark.log.RangeFetches;
import io.raftlake.spark.log.ScriptedListener;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Readers of real-time mode on a scripted node, whose partition t-0 begins, and ends at first, at offset 3. */
@Tag("memory")
@Timeout(60)
class RealTimeReaderTest {
    private static final TopicPartition AT = new TopicPartition("t", 0);

    /** For what comes for sure. */
    private static final long LONG_MS = 30_000;

    private static final long SHORT_MS = 50;

    /** In which a node that has nothing answers so, once at least. */
    private static final long QUIET_MS = 1_500;

    private ScriptedListener node;
    private RealTimeReader reader;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
    }

    @AfterEach
    void stop() throws IOException {
        if (reader != null) {
            reader.close();
        }
        node.close();
    }

    private RealTimeReader read(long start, long end, boolean failOnDataLoss) {
        Quorum quorum = new Quorum(node.servers(), "test", new Quorum.Patience(20_000, 0, 0, 0, "fetchOffset.numRetries"));
        PlannedRange task = new PlannedRange(new OffsetRange(AT, start, end), "AAAAAAAAAAAAAAAAAAAAAA", quorum,
                RangeFetches.LEADER, List.of(1), failOnDataLoss, true, null);
        reader = new RealTimeReader(task, Columns.ofSource(false));
        return reader;
    }

    private RealTimeReader read(long start) {
        return read(start, OffsetRange.OPEN, true);
    }

    private void append(String... values) {
        BatchBytes batch = new BatchBytes(0).at(7_000, false);
        for (int index = 0; index < values.length; index++) {
            batch.add(index, null, values[index]);
        }
        node.append(batch.bytes(), values.length);
    }

    private RecordStatus ask(long timeoutMs) throws IOException {
        return reader.nextWithTimeout(System.currentTimeMillis(), timeoutMs);
    }

    private String value() throws IOException {
        assertTrue(ask(LONG_MS).hasRecord());
        return new String(reader.get().getBinary(1), StandardCharsets.UTF_8);
    }

    private void requireOffset(long next) {
        assertEquals(new RealTimeOffset(AT, next), reader.getOffset());
    }

    @Test
    void rowsComeOneByOneWithTheNextOffset() throws IOException {
        read(3);
        requireOffset(3);
        append("a", "b");
        append("c");
        assertEquals("a", value());
        requireOffset(4);
        assertEquals("b", value());
        requireOffset(5);
        assertEquals("c", value());
        assertEquals(5, reader.get().getLong(4));
        assertFalse(ask(SHORT_MS).hasRecord());
        requireOffset(6);
        append("d");
        assertEquals("d", value());
        requireOffset(7);
    }

    @Test
    void aRowTellsWhenItWasAppended() throws IOException {
        read(3);
        append("a", "b");
        ask(LONG_MS);
        assertEquals(7_001, ask(LONG_MS).recArrivalTime().get());
    }

    @Test
    void aWaitEndsInTime() throws IOException {
        read(3);
        long begunAtNs = System.nanoTime();
        assertFalse(ask(SHORT_MS).hasRecord());
        long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begunAtNs);
        assertTrue(tookMs >= SHORT_MS && tookMs < LONG_MS, tookMs + " ms");
        requireOffset(3);
    }

    @Test
    void aNodeThatHasNothingIsNoFailure() throws IOException {
        read(3);
        assertFalse(ask(QUIET_MS).hasRecord());
        requireOffset(3);
        append("a");
        assertEquals("a", value());
    }

    @Test
    void aRowThatComesDuringTheWaitIsHandedOnAtOnce() throws Exception {
        read(3);
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            Future<String> value = other.submit(this::value);
            assertThrows(java.util.concurrent.TimeoutException.class, () -> value.get(SHORT_MS, TimeUnit.MILLISECONDS));
            append("late");
            assertEquals("late", value.get(LONG_MS, TimeUnit.MILLISECONDS));
        } finally {
            other.shutdownNow();
        }
    }

    @Test
    void aReadBeginsAmidABatch() throws IOException {
        append("a", "b", "c");
        read(4);
        requireOffset(4);
        assertEquals("b", value());
        requireOffset(5);
    }

    @Test
    void nobodyAskedForTheRowsThatAreLeft() throws IOException {
        append("a", "b", "c");
        read(3);
        assertEquals("a", value());
        requireOffset(4);
        assertEquals("b", value());
        requireOffset(5);
    }

    @Test
    void whatHoldsNoRowsIsPassed() throws IOException {
        node.append(new BatchBytes(0).transactional(7).marker(true).bytes(), 1);
        read(3);
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LONG_MS);
        while (!reader.getOffset().equals(new RealTimeOffset(AT, 4)) && System.nanoTime() < until) {
            assertFalse(ask(SHORT_MS).hasRecord());
        }
        requireOffset(4);
        append("a");
        assertEquals("a", value());
        requireOffset(5);
    }

    @Test
    void aConnectionThatEndsIsNoLoss() throws IOException {
        read(3);
        append("a");
        assertEquals("a", value());
        assertFalse(ask(SHORT_MS).hasRecord());
        node.closeConnections();
        append("b");
        assertEquals("b", value());
        requireOffset(5);
    }

    @Test
    void aLeaderThatLagsIsNoLostData() throws IOException {
        node.hideOffsets(2);
        read(3);
        append("a");
        assertEquals("a", value());
        node.hideOffsets(1);
        assertFalse(ask(SHORT_MS).hasRecord(), "the end itself is proven to be there");
        append("b");
        assertEquals("b", value());
    }

    @Test
    void whatRetentionRemovedIsLostData() throws IOException {
        node.beginAt(9);
        read(3);
        String told = assertThrows(DataLoss.class, () -> ask(LONG_MS)).getMessage();
        assertTrue(told.startsWith("Cannot fetch records in [3, 9) of t-0 ("), told);
        reader.close();
        read(3, OffsetRange.OPEN, false);
        append("a");
        assertEquals("a", value());
        requireOffset(10);
    }

    @Test
    void aTopicThatIsGoneIsLostData() throws IOException {
        node.dropTopic();
        read(3);
        String told = assertThrows(DataLoss.class, () -> ask(LONG_MS)).getMessage();
        assertTrue(told.startsWith("Cannot fetch records of t-0 from offset 3 on ("), told);
        reader.close();
        read(3, OffsetRange.OPEN, false);
        assertFalse(ask(LONG_MS).hasRecord());
        requireOffset(3);
    }

    @Test
    void aBatchThatMarksThePlaceIsOverAtOnce() throws IOException {
        append("a");
        read(4, 4, true);
        assertFalse(ask(LONG_MS).hasRecord());
        requireOffset(4);
    }

    @Test
    void aTaskThatIsKilledEndsItsWait() throws Exception {
        read(3);
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            Future<RecordStatus> asked = other.submit(() -> ask(LONG_MS));
            assertThrows(java.util.concurrent.TimeoutException.class, () -> asked.get(SHORT_MS, TimeUnit.MILLISECONDS));
            other.shutdownNow();
            ExecutionException ended =
                    assertThrows(ExecutionException.class, () -> asked.get(LONG_MS, TimeUnit.MILLISECONDS));
            assertEquals(InterruptedIOException.class, ended.getCause().getClass());
        } finally {
            other.shutdownNow();
        }
    }

    @Test
    void offsetsOfAllTasksAreMerged() throws IOException {
        TopicPartition second = new TopicPartition("t", 1);
        PartitionOffset[] told = {new RealTimeOffset(AT, 4), new RealTimeOffset(second, 9)};
        assertEquals("{\"t\":{\"0\":4,\"1\":9}}", RaftlakeStream.merged(told, List.of(AT, second)).json());
        TopicPartition third = new TopicPartition("t", 2);
        assertEquals("no task has told how far it has read [t-2]", assertThrows(IllegalStateException.class,
                () -> RaftlakeStream.merged(told, List.of(AT, second, third))).getMessage());
        try (ObjectOutputStream out = new ObjectOutputStream(new ByteArrayOutputStream())) {
            out.writeObject(told[0]);
        }
    }

    @Test
    void tooFewSlotsAreToldInOneLine() {
        String told = RealTimeSlots.tooFew("raftlake[Subscribe[t]]", 4, 0, 2, "local[2]");
        assertEquals("real-time mode needs a slot for each partition: raftlake[Subscribe[t]] has 4, and there are 2 (local[2]). "
                + "A partition without one is never read. Start Spark with 4 (local[4], or executors' cores / spark.task.cpus), "
                + "or read fewer partitions", told);
        String shared = RealTimeSlots.tooFew("raftlake[Subscribe[t]]", 4, 3, 6, "local[6]");
        assertTrue(shared.contains("has 4, other sources in real-time mode hold 3, and there are 6 (local[6])."), shared);
        assertTrue(shared.contains("Start Spark with 7 (local[7],"), shared);
    }
}
