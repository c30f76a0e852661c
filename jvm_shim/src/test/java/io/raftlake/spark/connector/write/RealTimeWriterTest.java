package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.Batches;
import io.raftlake.spark.log.ScriptedListener;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Writers of real-time mode on a scripted node with one topic, t. */
@Tag("memory")
@Timeout(60)
class RealTimeWriterTest {
    private static final long LONG_NS = 30_000_000_000L;
    private static final StructType COLUMNS = new StructType().add("value", DataTypes.BinaryType);

    private ScriptedListener node;
    private RealTimeWriter writer;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        writer = writer("");
    }

    private RealTimeWriter writer(String transactionalId) {
        SinkOptions options = SinkOptions.of(Map.of("kafka.bootstrap.servers", node.servers(), "topic", "t"));
        return new RealTimeWriter(options, SinkColumns.of(COLUMNS, "t"), SinkClient.of(options.quorum()),
                new SinkTask("batch 7: ", 0, transactionalId, null));
    }

    @AfterEach
    void stop() throws IOException {
        writer.close();
        node.close();
    }

    private void write(String value) throws IOException {
        writer.write(new GenericInternalRow(new Object[] {value.getBytes(StandardCharsets.UTF_8)}));
    }

    private List<String> values() throws IOException {
        List<String> values = new ArrayList<>();
        for (byte[] bytes : node.batches()) {
            Batches batches = new Batches(ByteBuffer.wrap(bytes), List.of());
            while (batches.next()) {
                batches.forEach(each -> values.add(new String(each.record().value(), StandardCharsets.UTF_8)));
            }
        }
        return values;
    }

    private void waitFor(List<String> expected) throws Exception {
        long until = System.nanoTime() + LONG_NS;
        while (!values().equals(expected) && System.nanoTime() < until) {
            Thread.sleep(1);
        }
        assertEquals(expected, values());
    }

    @Test
    void aRowIsSentWithoutAFurtherCall() throws Exception {
        write("a");
        waitFor(List.of("a"));
        write("b");
        waitFor(List.of("a", "b"));
        for (byte[] batch : node.batches()) {
            assertEquals(0, batch[22] & 0x10, "no batch belongs to a transaction");
        }
    }

    @Test
    void aRowOfATransactionIsSentAtOnceTooAndItsEndIsTheDrivers() throws Exception {
        writer = writer("x");
        write("a");
        waitFor(List.of("a"));
        for (byte[] batch : node.batches()) {
            assertEquals(0x10, batch[22] & 0x10, "each batch belongs to the transaction");
        }
        TaskReport report = TaskReport.of(new WriterCommitMessage[] {writer.commit()}).get(0);
        long producer = ByteBuffer.wrap(node.batches().get(0)).getLong(43);
        short epoch = ByteBuffer.wrap(node.batches().get(0)).getShort(51);
        assertEquals(new TaskReport(new Ending(producer, epoch), "x", Map.of("t", 1L)), report);
    }

    @Test
    void aTaskOfATransactionWithoutRowsHasNone() throws Exception {
        writer = writer("x");
        assertEquals(List.of(new TaskReport(null, "", Map.of())), TaskReport.of(new WriterCommitMessage[] {writer.commit()}));
        writer.abort();
        assertEquals(0, node.connections());
    }

    @Test
    void whatComesDuringAnAppendIsTheNextBatch() throws Exception {
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 5_000; number++) {
            expected.add("v" + number);
            write(expected.get(number));
        }
        assertEquals(List.of(new TaskReport(null, "", Map.of("t", 5_000L))),
                TaskReport.of(new WriterCommitMessage[] {writer.commit()}));
        assertEquals(expected, values());
        assertTrue(node.batches().size() < 2_500, node.batches().size() + " batches");
    }

    @Test
    void rowsWhoseAnswersWereLostStandOnceAndInOrder() throws Exception {
        node.loseAppends(2);
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            expected.add("v" + number);
            write(expected.get(number));
        }
        // Nobody calls: it is sent again all the same.
        waitFor(expected);
        writer.commit();
        assertEquals(expected, values());
    }

    @Test
    void aRowThatANodeRefusesFailsTheTask() throws Exception {
        node.refuseAppend();
        write("a");
        String told = assertThrows(RefusedException.class, () -> writer.commit()).getMessage();
        assertTrue(told.startsWith("batch 7: an append to t-0: "), told);
        assertTrue(told.contains("the largest row of this task has 34 bytes"), told);
        assertThrows(RefusedException.class, () -> write("b"), "the next row");
    }

    @Test
    void aBatchThatIsFullMakesTheTaskWait() throws Exception {
        String half = "x".repeat(LiveSends.BATCH_BYTES_MAX / 2);
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 30; number++) {
            expected.add(number + half);
            write(expected.get(number));
        }
        writer.commit();
        assertEquals(expected, values());
        for (byte[] batch : node.batches()) {
            assertTrue(batch.length < 2 * LiveSends.BATCH_BYTES_MAX, batch.length + " bytes");
        }
        write("y".repeat(3 * LiveSends.BATCH_BYTES_MAX));
        writer.commit();
    }

    @Test
    void aTaskThatIsKilledEndsItsWait() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            node.ignoreAppend();
            write("a");
            Future<WriterCommitMessage> committed = other.submit(() -> writer.commit());
            assertThrows(TimeoutException.class, () -> committed.get(50, TimeUnit.MILLISECONDS));
            other.shutdownNow();
            ExecutionException ended =
                    assertThrows(ExecutionException.class, () -> committed.get(LONG_NS, TimeUnit.NANOSECONDS));
            assertEquals(InterruptedIOException.class, ended.getCause().getClass());
        } finally {
            other.shutdownNow();
        }
    }

    @Test
    void aTaskWithoutRowsAsksNothing() throws Exception {
        assertEquals(List.of(new TaskReport(null, "", Map.of())), TaskReport.of(new WriterCommitMessage[] {writer.commit()}));
        assertEquals(0, node.connections());
    }
}
