package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.Selection;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class PositionWriterTest {
    private static final String READS = "subscribe t";

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private long nowMs;

    private PositionWriter writer(String run, String reads) {
        return new PositionWriter(
                keys, new QueryPosition.Source("q", run, "name", reads, "host-1", 17), () -> nowMs);
    }

    private static SortedMap<TopicPartition, Long> at(long offset) {
        return OffsetJson.parse("{\"t\":{\"0\":" + offset + "}}");
    }

    private static String key(int number) {
        return new QueryPosition.Source("q", "", "", READS, "", 0).key(number);
    }

    private QueryPosition read(int number) throws IOException {
        return QueryPosition.decode(keys.get(key(number)).orElseThrow().value());
    }

    private long offset(int number) throws IOException {
        return read(number).offsets().get(new TopicPartition("t", 0));
    }

    /** As {@code raftlake/kv/query_positions.py} has it. tests/connector/test_connector_position_writer.py has it too. */
    @Test
    void theValueIsThatOfTheConnectorInPython() throws IOException {
        PositionWriter writer = writer("run-1", READS);
        assertTrue(writer.write(OffsetJson.parse("{\"t\":{\"0\":5,\"10\":7},\"a\":{\"2\":0}}"), 3, 4));
        assertEquals(List.of("/sources/q/positions/a731a4f915475a69"), keys.keys("/sources/q/"));
        String value = new String(keys.get(key(0)).orElseThrow().value(), StandardCharsets.UTF_8);
        assertEquals("{\"offsets\":{\"a\":{\"2\":0},\"t\":{\"0\":5,\"10\":7}},\"batch_ms\":3,\"seen_ms\":4,\"run\":\"run-1\","
                + "\"writer\":\"W\",\"generation\":1,\"name\":\"name\",\"reads\":\"subscribe t\",\"host\":\"host-1\","
                + "\"pid\":17}",
                value.replaceFirst("\"writer\":\"[0-9a-f]{32}\"", "\"writer\":\"W\""));
    }

    @Test
    void whatASourceReadsIsToldInTheWordsOfBoth() {
        assertEquals("subscribe a,b", QueryPosition.reads(new Selection.Subscribe(List.of("a", "b"))));
        assertEquals("subscribePattern a.*", QueryPosition.reads(new Selection.SubscribePattern(Pattern.compile("a.*"))));
        assertEquals("assign a-2,a-10", QueryPosition.reads(new Selection.Assign(
                new TreeSet<>(List.of(new TopicPartition("a", 10), new TopicPartition("a", 2))))));
    }

    @Test
    void theNameOfAQueryStandsInFrontOfItsId() {
        for (String name : List.of("totals of", "a\nid = 7")) {
            String told = name + "\nid = q\nrunId = 2\nbatch = init";
            assertEquals(name, QueryPosition.Source.here("q", "2", told, READS).name());
        }
        assertEquals("", QueryPosition.Source.here("q", "2", "id = q\nrunId = 2\nbatch = init", READS).name());
        assertEquals("", QueryPosition.Source.here("q", "2", "somebody's own", READS).name());
        assertEquals("", QueryPosition.Source.here("q", "2", null, READS).name());
    }

    @Test
    void aRunWritesOnAndTheNextOneTakesTheKey() throws IOException {
        PositionWriter first = writer("run-1", READS);
        assertTrue(first.write(at(1), 0, 1) && first.write(at(2), 2, 2) && first.write(at(3), 3, 3));
        assertEquals(1, read(0).generation());
        PositionWriter second = writer("run-2", READS);
        assertTrue(second.write(at(3), 0, 9));
        assertEquals(2, read(0).generation());
        assertEquals(3, read(0).batchMs(), "of the batch that an earlier run has read");
        assertFalse(first.write(at(4), 4, 10), "an older driver");
        assertEquals(3, offset(0));
        assertTrue(second.write(at(5), 11, 11));
        assertFalse(first.write(at(6), 12, 12), "and it stays so");
        assertEquals(5, offset(0));
    }

    @Test
    void aRunThatWasReplacedReturnsWhereTheOtherIsSilentAndItGoesOn() throws IOException {
        PositionWriter first = writer("run-1", READS);
        first.write(at(1), 0, 1);
        PositionWriter second = writer("run-2", READS);
        second.write(at(1), 0, 1);
        assertFalse(first.write(at(2), 0, 1));
        nowMs += PositionWriter.SILENT_MS;
        assertFalse(first.write(at(2), 0, 1), "it has not gone on");
        second.write(at(2), 0, 2);
        assertFalse(first.write(at(3), 0, 1), "the other has");
        nowMs += PositionWriter.SILENT_MS - 1;
        assertFalse(first.write(at(4), 0, 1), "not for so long");
        nowMs += 1;
        assertTrue(first.write(at(4), 0, 1));
        assertEquals(4, offset(0));
        assertEquals(3, read(0).generation());
        assertFalse(second.write(at(2), 0, 2));
    }

    @Test
    void twoSourcesOfARunThatReadTheSameHaveAKeyEach() throws IOException {
        PositionWriter one = writer("run-1", READS);
        PositionWriter two = writer("run-1", READS);
        PositionWriter other = writer("run-1", "subscribe u");
        for (int offset = 1; offset < 3; offset++) {
            assertTrue(one.write(at(offset), 0, 1) && two.write(at(offset + 10), 0, 1) && other.write(at(99), 0, 1));
        }
        assertEquals(3, keys.keys("/sources/q/positions/").size());
        assertEquals(List.of(2L, 12L), List.of(offset(0), offset(1)));
        // Started again they come in any order.
        assertTrue(writer("run-2", READS).write(at(20), 0, 1) && writer("run-2", READS).write(at(21), 0, 1));
        assertEquals(List.of(20L, 21L), List.of(offset(0), offset(1)));
        assertEquals(3, keys.keys("/sources/q/positions/").size());
    }

    @Test
    void aPositionThatWasForgottenIsWrittenAgainByTheNewerRun() throws IOException {
        PositionWriter first = writer("run-1", READS);
        first.write(at(1), 0, 1);
        PositionWriter second = writer("run-2", READS);
        second.write(at(2), 0, 1);
        keys.commit(new Txn().deletePrefix("/sources/q/"), Witness.gone(key(0), 0));
        assertTrue(second.write(at(3), 0, 1));
        assertEquals(2, read(0).generation());
        assertFalse(first.write(at(1), 0, 1));
        assertEquals(3, offset(0));
    }

    /** The one that took the key later is the newer one. */
    @Test
    void afterAPositionWasForgottenTwoRunsMayHaveTheSameGeneration() throws IOException {
        PositionWriter first = writer("run-1", READS);
        first.write(at(1), 0, 1);
        keys.commit(new Txn().deletePrefix("/sources/q/"), Witness.gone(key(0), 0));
        writer("run-2", READS).write(at(2), 0, 1);
        assertFalse(first.write(at(1), 0, 1));
        assertEquals(2, offset(0));
    }

    @Test
    void whatIsNoPositionIsReplaced() throws IOException {
        byte[] value = "{\"offsets\":{\"t\":7}}".getBytes(StandardCharsets.UTF_8);
        assertNull(QueryPosition.decode(value));
        keys.commit(new Txn().put(key(0), value), Witness.put(key(0), value));
        assertTrue(writer("run-1", READS).write(at(1), 0, 1));
        assertEquals(1, offset(0));
    }
}
