package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import io.raftlake.spark.log.ProducerId;
import io.raftlake.spark.log.ScriptedListener;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which attempt of a task writes as the producer that the driver has asked for, on a scripted node with one topic, t. */
@Tag("memory")
@Timeout(60)
class SinkWriterFactoryTest {
    private static final StructType COLUMNS = new StructType().add("value", DataTypes.BinaryType);
    private static final ProducerId ASKED_FOR = new ProducerId(7_700, (short) 4);
    private static final Ending OF_DRIVER = new Ending(ASKED_FOR.id(), ASKED_FOR.epoch());
    private static final Standing STANDING = new Standing("a", "r", 3, 1, 6, 1, false);

    private ScriptedListener node;
    private SinkWriterFactory factory;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        SinkOptions options = SinkOptions.of(Map.of("kafka.bootstrap.servers", node.servers(), "topic", "t"));
        factory = new SinkWriterFactory(options, SinkColumns.of(COLUMNS, "t"), STANDING, null, Map.of(2, ASKED_FOR));
    }

    @AfterEach
    void stop() throws IOException {
        TaskContext$.MODULE$.unset();
        node.close();
    }

    /** The calling thread runs this attempt from now on. */
    private static void run(int stageAttempt, int attempt) {
        TaskContext context = new TaskContextImpl(
                5, stageAttempt, 2, 9, attempt, 4, null, new Properties(), null, new TaskMetrics(), 1, null);
        TaskContext$.MODULE$.setTaskContext(context);
    }

    private TaskReport written(int partition, long batch) throws IOException {
        try (DataWriter<InternalRow> writer = factory.createWriter(partition, 9, batch)) {
            writer.write(new GenericInternalRow(new Object[] {"v".getBytes(StandardCharsets.UTF_8)}));
            return TaskReport.of(new WriterCommitMessage[] {writer.commit()}).get(0);
        }
    }

    @Test
    void theFirstAttemptWritesAsTheProducerThatWasAskedFor() throws IOException {
        run(0, 0);
        TaskReport report = written(2, 7);
        assertEquals(OF_DRIVER, report.ending());
        assertEquals(SinkKeys.appTransactionalId("a", 3, 2, 0), report.transaction());
        assertEquals(1, node.batches().size());
    }

    @Test
    void eachOtherAttemptAsksForItself() throws IOException {
        run(0, 1);
        TaskReport second = written(2, 7);
        assertNotEquals(OF_DRIVER, second.ending());
        assertEquals(SinkKeys.appTransactionalId("a", 3, 2, 1), second.transaction());
        // Its attempts count from 0 again, and the one of the stage before may still run.
        run(1, 0);
        assertNotEquals(OF_DRIVER, written(2, 7).ending());
        TaskContext$.MODULE$.unset();
        assertNotEquals(OF_DRIVER, written(2, 7).ending());
    }

    @Test
    void aTaskThatNobodyAskedForAsksForItself() throws IOException {
        run(0, 0);
        assertNotEquals(OF_DRIVER, written(1, 7).ending());
    }

    @Test
    void aBatchThatIsVisibleIsLeftOut() throws IOException {
        run(0, 0);
        assertEquals(new TaskReport(null, "", Map.of()), written(2, 6));
        assertEquals(List.of(), node.batches());
    }

    /** State commits at the end of the rows of a task. */
    @ParameterizedTest
    @CsvSource({"8d0e3b1c-query, 2", ", 0"})
    void theRowsOfABatchThatIsVisibleAreReadForTheStateOfAQuery(String query, int read) throws IOException {
        run(0, 0);
        if (query != null) {
            TaskContext.get().getLocalProperties().setProperty("sql.streaming.queryId", query);
        }
        AtomicInteger asked = new AtomicInteger();
        Iterator<InternalRow> rows = Stream.of("a", "b").map(value -> {
            asked.incrementAndGet();
            return (InternalRow) new GenericInternalRow(new Object[] {value.getBytes(StandardCharsets.UTF_8)});
        }).iterator();
        try (DataWriter<InternalRow> writer = factory.createWriter(2, 9, 6)) {
            writer.writeAll(rows);
            assertEquals(new TaskReport(null, "", Map.of()), TaskReport.of(new WriterCommitMessage[] {writer.commit()}).get(0));
        }
        assertEquals(read, asked.get());
        assertEquals(List.of(), node.batches());
    }
}
