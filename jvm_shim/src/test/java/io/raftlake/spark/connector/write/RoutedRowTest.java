package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.log.ScriptedListener;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Rows that name their partition, of a topic that gets more of them. */
@Tag("memory")
@Timeout(60)
class RoutedRowTest {
    private static final StructType COLUMNS =
            new StructType().add("value", DataTypes.BinaryType).add("partition", DataTypes.IntegerType);

    private ScriptedListener node;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
    }

    private RoutedRow task() {
        SinkOptions options = SinkOptions.of(Map.of("kafka.bootstrap.servers", node.servers(), "topic", "t"));
        return new RoutedRow(options, SinkColumns.of(COLUMNS, "t"), SinkClient.of(options.quorum()), 0);
    }

    private static int partition(RoutedRow row, int partition) throws IOException {
        row.read(new GenericInternalRow(new Object[] {new byte[1], partition}));
        return row.partition();
    }

    private static String refused(RoutedRow row, int partition) {
        return assertThrows(InvalidRowException.class, () -> partition(row, partition)).getMessage();
    }

    @Test
    void aPartitionThatWasAddedIsTakenByTheNextTaskAndByOneThatRuns() throws IOException {
        RoutedRow running = task();
        assertEquals(0, partition(running, 0));
        running.rows().buffer(0);
        node.growTo(2);
        assertEquals(1, partition(task(), 1));
        assertEquals(1, partition(running, 1));
        running.rows().buffer(1);
        node.growTo(3);
        assertEquals(2, partition(running, 2));
        assertEquals("column partition: partition 3 does not exist: the topic has 3 partitions", refused(running, 3));
        assertEquals("column partition: partition -1 does not exist: the topic has 3 partitions", refused(running, -1));
    }

    /** Nodes hear of a partition one after another. */
    @Test
    void aPartitionThatTheNextLookShowsIsTaken() throws Exception {
        RoutedRow running = task();
        assertEquals(0, partition(running, 0));
        Thread other = new Thread(() -> {
            LockSupport.parkNanos(200_000_000);
            node.growTo(2);
        });
        other.start();
        assertEquals(1, partition(running, 1));
        other.join();
    }

    @Test
    void aTopicThatIsGoneIsTold() throws IOException {
        RoutedRow running = task();
        assertEquals(0, partition(running, 0));
        node.dropTopic();
        assertEquals(true, refused(running, 1).startsWith("column topic: "));
    }
}
