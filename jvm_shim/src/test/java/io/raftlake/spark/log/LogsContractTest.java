package io.raftlake.spark.log;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.log.Logs.Fetched;
import io.raftlake.spark.log.Logs.Header;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.Logs.Topic;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** What {@link Logs} promises: of the logs in memory, and of a quorum's. */
class LogsContractTest {
    private static final int MIB = 1 << 20;
    private static final int WAIT_MS = 10_000;

    private final Logs logs = Spaces.LOGS;
    private final String name = Spaces.newTopic();
    private final Partition at = new Partition(name, 0);

    private static LogRecord record(String key, String value) {
        return LogRecord.of(utf8(key), utf8(value));
    }

    private static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String value(Numbered record) {
        return new String(record.record().value(), StandardCharsets.UTF_8);
    }

    /** All values from an offset up to the end. */
    private List<String> values(Partition from, long offset, int maxBytes) throws IOException {
        List<String> found = new ArrayList<>();
        long end = logs.end(from);
        while (offset < end) {
            Fetched got = logs.fetch(from, offset, maxBytes, WAIT_MS);
            got.records().forEach(record -> found.add(value(record)));
            assertTrue(got.nextOffset() > offset, "a read goes on");
            offset = got.nextOffset();
        }
        return found;
    }

    @Test
    void aTopicIsCreatedOnceAndNamedByItsId() throws IOException {
        assertEquals(Optional.empty(), logs.topic(name));
        Topic made = logs.ensureTopic(name, 2, Map.of("retention.ms", "-1"));
        assertEquals(name, made.name());
        assertEquals(2, made.partitions());
        assertEquals(22, made.id().length());
        assertEquals(made, logs.ensureTopic(name, 7, Map.of()), "it is there");
        assertEquals(Optional.of(made), logs.topic(name));
        assertEquals(List.of(name), logs.topics(name));
        assertEquals(List.of(), logs.topics(name + "-"));
    }

    @Test
    void whoCreatesATopicDeletesThatOneAlone() throws IOException {
        Logs.Created first = logs.createTopic(name, 2, Map.of()).orElseThrow();
        assertTrue(first.isOurs());
        assertEquals(Optional.of(first.topic()), logs.topic(name));
        assertEquals(Optional.empty(), logs.createTopic(name, 2, Map.of()), "it is there");
        logs.deleteTopic(first.topic());
        assertEquals(Optional.empty(), logs.topic(name));
        Topic second = logs.createTopic(name, 1, Map.of()).orElseThrow().topic();
        logs.deleteTopic(first.topic());
        assertEquals(Optional.of(second), logs.topic(name), "another one of the name stays");
    }

    @Test
    void aNameThatIsCreatedAgainIsAnotherTopic() throws IOException {
        Topic first = logs.ensureTopic(name, 1, Map.of());
        logs.append(at, List.of(record("k", "old")));
        logs.deleteTopic(name);
        assertEquals(Optional.empty(), logs.topic(name));
        logs.deleteTopic(name);
        Topic second = logs.ensureTopic(name, 1, Map.of());
        assertNotEquals(first.id(), second.id());
        logs.append(at, List.of(record("k", "new")));
        assertEquals(List.of("new"), values(at, 0, MIB));
    }

    @Test
    void partitionsAreAddedAndNeverTaken() throws IOException {
        logs.ensureTopic(name, 1, Map.of());
        logs.append(at, List.of(record("k", "kept")));
        logs.addPartitions(name, 3);
        assertEquals(3, logs.topic(name).orElseThrow().partitions());
        logs.addPartitions(name, 2);
        logs.addPartitions(name, 3);
        assertEquals(3, logs.topic(name).orElseThrow().partitions());
        logs.append(new Partition(name, 2), List.of(record("k", "v")));
        assertEquals(List.of("v"), values(new Partition(name, 2), 0, MIB));
        assertEquals(List.of("kept"), values(at, 0, MIB));
        assertThrows(RefusedException.class, () -> logs.addPartitions(name + "-none", 2));
    }

    @Test
    void recordsComeBackAsTheyWere() throws IOException {
        logs.ensureTopic(name, 1, Map.of());
        long before = System.currentTimeMillis();
        LogRecord full = new LogRecord(bytes(10), bytes(3000), List.of(new Header("a", bytes(5)), new Header("b", null)));
        LogRecord empty = LogRecord.of(new byte[0], new byte[0]);
        long first = logs.append(at, List.of(full, new LogRecord(null, null, List.of()), empty));
        List<Numbered> found = logs.fetch(at, first, MIB, WAIT_MS).records();
        assertEquals(List.of(first, first + 1, first + 2), found.stream().map(Numbered::offset).toList());
        assertArrayEquals(bytes(10), found.get(0).record().key());
        assertArrayEquals(bytes(3000), found.get(0).record().value());
        List<Header> headers = found.get(0).record().headers();
        assertEquals(List.of("a", "b"), headers.stream().map(Header::key).toList());
        assertArrayEquals(bytes(5), headers.get(0).value());
        assertNull(headers.get(1).value());
        assertNull(found.get(1).record().key());
        assertNull(found.get(1).record().value());
        assertEquals(0, found.get(2).record().key().length);
        assertEquals(0, found.get(2).record().value().length);
        assertTrue(found.get(0).timestampMs() >= before - 1 && found.get(0).timestampMs() <= System.currentTimeMillis());
    }

    @Test
    void appendsGetOffsetsInTheirOrder() throws IOException {
        logs.ensureTopic(name, 2, Map.of());
        List<String> expected = new ArrayList<>();
        long middle = 0;
        long end = logs.end(at);
        for (int batch = 0; batch < 20; batch++) {
            List<LogRecord> records = new ArrayList<>();
            for (int index = 0; index <= batch % 4; index++) {
                expected.add("value " + batch + "/" + index);
                records.add(record("key", expected.get(expected.size() - 1)));
            }
            long first = logs.append(at, records);
            assertTrue(first >= end, "it lies behind all that was there");
            end = logs.end(at);
            assertTrue(end >= first + records.size(), "what was acknowledged lies below the end");
            middle = batch == 3 ? first + 1 : middle;
        }
        assertEquals(0, logs.earliest(at));
        assertEquals(expected, values(at, 0, MIB));
        assertEquals(expected, values(at, 0, 1), "one byte at most: still a record at least");
        assertEquals(expected.subList(7, expected.size()), values(at, middle, MIB), "from the middle of a batch");
        assertEquals(List.of(), values(new Partition(name, 1), 0, MIB));
    }

    @Test
    void aReadSaysWhereToGoOnAndTheBounds() throws IOException {
        logs.ensureTopic(name, 1, Map.of());
        long empty = logs.end(at);
        Fetched nothing = logs.fetch(at, empty, MIB, 0);
        assertEquals(new Fetched(List.of(), empty, 0, empty), nothing);
        long first = logs.append(at, List.of(record("k", "v"), record("k", "w")));
        Fetched got = logs.fetch(at, first + 1, MIB, WAIT_MS);
        assertEquals(List.of("w"), got.records().stream().map(LogsContractTest::value).toList());
        assertEquals(first + 2, got.nextOffset());
        assertEquals(first + 2, got.highWatermark());
        assertEquals(0, got.logStart());
        assertThrows(RefusedException.class, () -> logs.fetch(at, first + 1000, MIB, 0));
    }

    @Test
    void aReadWaitsForTheFirstRecord() throws Exception {
        logs.ensureTopic(name, 1, Map.of());
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try {
            long end = logs.end(at);
            Future<Fetched> waiting = threads.submit(() -> logs.fetch(at, end, MIB, WAIT_MS));
            logs.append(at, List.of(record("k", "came")));
            assertEquals("came", value(waiting.get().records().get(0)));
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void deletedRecordsMoveTheLogStart() throws IOException {
        logs.ensureTopic(name, 1, Map.of());
        List<Long> firsts = new ArrayList<>();
        for (int batch = 0; batch < 5; batch++) {
            firsts.add(logs.append(at, List.of(record("k", batch + "a"), record("k", batch + "b"))));
        }
        long middle = firsts.get(1) + 1;
        logs.deleteRecords(at, middle);
        assertEquals(middle, logs.earliest(at));
        LogStartException below = assertThrows(LogStartException.class, () -> logs.fetch(at, middle - 1, MIB, 0));
        assertEquals(middle, below.logStart());
        assertEquals("1b", value(logs.fetch(at, middle, MIB, WAIT_MS).records().get(0)));
        logs.deleteRecords(at, firsts.get(1));
        assertEquals(middle, logs.earliest(at), "it never goes back");
        assertThrows(RefusedException.class, () -> logs.deleteRecords(at, firsts.get(4) + 1000));
        long end = firsts.get(4) + 2;
        logs.deleteRecords(at, end);
        assertEquals(end, logs.earliest(at));
        long next = logs.append(at, List.of(record("k", "next")));
        assertTrue(next >= end);
        assertEquals(List.of("next"), values(at, end, MIB));
    }

    @Test
    void whatIsNotThereIsRefusedByName() {
        Partition none = new Partition(name + "-none", 0);
        List<Callable<Object>> calls = List.of(
                () -> logs.append(none, List.of(record("k", "v"))),
                () -> logs.fetch(none, 0, MIB, 0),
                () -> logs.end(none),
                () -> logs.earliest(none));
        for (Callable<Object> call : calls) {
            RefusedException refused = assertThrows(RefusedException.class, call::call);
            assertTrue(refused.getMessage().contains(none.topic()), refused.getMessage());
        }
    }

    @Test
    void aPartitionThatIsNotThereIsRefused() throws IOException {
        logs.ensureTopic(name, 1, Map.of());
        Partition none = new Partition(name, 1);
        assertThrows(RefusedException.class, () -> logs.append(none, List.of(record("k", "v"))));
        assertThrows(RefusedException.class, () -> logs.end(none));
        assertThrows(RefusedException.class, () -> logs.fetch(none, 0, MIB, 0));
    }

    @Test
    void aBatchAboveTheTopicsBoundIsRefusedAndLeavesNothing() throws IOException {
        logs.ensureTopic(name, 1, Map.of("max.message.bytes", "200000"));
        assertThrows(RefusedException.class, () -> logs.append(at, List.of(LogRecord.of(null, bytes(200_001)))));
        assertEquals(List.of(), values(at, 0, MIB));
        logs.append(at, List.of(record("k", "small")));
        assertEquals(List.of("small"), values(at, 0, MIB));
        logs.append(at, List.of(LogRecord.of(null, bytes(199_000))));
        assertThrows(IllegalArgumentException.class, () -> logs.append(at, List.of()));
    }

    @Test
    void parallelAppendsLoseAndDoubleNothing() throws Exception {
        logs.ensureTopic(name, 2, Map.of());
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try {
            List<Future<Set<String>>> writers = new ArrayList<>();
            for (int writer = 0; writer < 8; writer++) {
                Partition mine = new Partition(name, writer % 2);
                String who = "w" + writer;
                writers.add(threads.submit(() -> write(mine, who)));
            }
            Set<String> written = new HashSet<>();
            for (Future<Set<String>> writer : writers) {
                written.addAll(writer.get());
            }
            List<String> found = new ArrayList<>(values(at, 0, MIB));
            found.addAll(values(new Partition(name, 1), 0, MIB));
            assertEquals(written.size(), found.size());
            assertEquals(written, new HashSet<>(found));
        } finally {
            threads.shutdownNow();
        }
    }

    /** Each append is found at the offset that was told. */
    private Set<String> write(Partition into, String who) throws IOException {
        Set<String> written = new HashSet<>();
        for (int index = 0; index < 25; index++) {
            List<LogRecord> batch = List.of(record(who, who + ":" + index + "a"), record(who, who + ":" + index + "b"));
            long first = logs.append(into, batch);
            List<Numbered> found = logs.fetch(into, first, MIB, WAIT_MS).records();
            assertEquals(first, found.get(0).offset());
            for (int number = 0; number < 2; number++) {
                assertEquals(new String(batch.get(number).value(), StandardCharsets.UTF_8), value(found.get(number)));
                written.add(value(found.get(number)));
            }
        }
        return written;
    }
}
