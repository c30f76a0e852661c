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
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranges with an end on a scripted node, whose partition t-0 begins, and ends at first, at offset 3. */
@Tag("memory")
@Timeout(60)
class LogRangeReaderTest {
    private static final TopicPartition AT = new TopicPartition("t", 0);

    private ScriptedListener node;
    private LogRangeReader reader;

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

    private void read(long start, long end, boolean failOnDataLoss, String topicId, Integer... replicas) {
        Quorum quorum = new Quorum(node.servers(), "test", new Quorum.Patience(20_000, 0, 0, 0, "fetchOffset.numRetries"));
        PlannedRange task = new PlannedRange(new OffsetRange(AT, start, end), topicId, quorum, RangeFetches.LEADER,
                List.of(replicas), failOnDataLoss, true, null);
        reader = new LogRangeReader(task, start, Columns.ofSource(false), Long.MAX_VALUE, new ReadMetrics());
    }

    private void read(long start, long end, boolean failOnDataLoss) {
        read(start, end, failOnDataLoss, "AAAAAAAAAAAAAAAAAAAAAA", 1);
    }

    private void append(String value) {
        node.append(new BatchBytes(0).at(7_000, false).add(0, null, value).bytes(), 1);
    }

    @Test
    void whatALogIsProvenNotToReachIsLost() throws IOException {
        append("a");
        read(3, 6, false);
        assertTrue(reader.next());
        assertEquals(3, reader.offset(0));
        assertFalse(reader.next());
        assertEquals(6, reader.position());
        reader.close();
        read(4, 6, true);
        String told = assertThrows(DataLoss.class, reader::next).getMessage();
        assertTrue(told.startsWith("Cannot fetch records in [4, 6) of t-0 (the log ends at or before 4)"), told);
    }

    @Test
    void anEmptyAnswerOfASlowNodeIsNoLoss() throws IOException {
        append("a");
        node.withholdRecords(3);
        read(3, 4, false);
        assertTrue(reader.next());
        assertEquals(3, reader.offset(0));
    }

    @Test
    void anEmptyAnswerIsNoLossWhereNobodyCanSay() throws IOException {
        append("a");
        node.withholdRecords(1);
        node.hideEnds(2);
        read(3, 4, false);
        assertTrue(reader.next());
        assertEquals(3, reader.offset(0));
    }

    @Test
    void aTopicThatWasGoneAtThePlanIsLostWhateverHasItsNameByNow() throws IOException {
        append("a");
        read(3, 4, false, null, 1);
        assertFalse(reader.next());
        assertEquals(4, reader.position());
    }

    @Test
    void damageEndsTheTaskWhereNoNodeIsLeftToAsk() {
        byte[] batch = new BatchBytes(0).at(7_000, false).add(0, null, "a").bytes();
        batch[batch.length - 1] ^= 1;
        node.append(batch, 1);
        // Nobody knows nodes 2 and 3: in their place the leader answers.
        for (List<Integer> replicas : List.of(List.of(2), List.of(2, 1, 3))) {
            read(3, 4, true, "AAAAAAAAAAAAAAAAAAAAAA", replicas.toArray(Integer[]::new));
            String told = assertThrows(IOException.class, reader::next).getMessage();
            assertTrue(told.startsWith("[3, 4) of t-0: "), told);
        }
    }
}
