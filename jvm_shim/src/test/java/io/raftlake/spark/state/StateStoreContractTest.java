package io.raftlake.spark.state;

import static io.raftlake.spark.kit.StateQuery.DEFAULT;
import static io.raftlake.spark.kit.StateQuery.all;
import static io.raftlake.spark.kit.StateQuery.key;
import static io.raftlake.spark.kit.StateQuery.value;
import static io.raftlake.spark.kit.StateQuery.word;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreChangeDataReader;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import scala.Option;
import scala.collection.Iterator;

/** What Spark asks of a state store: of ours, of Spark's own through ours, and of Spark's own, in both checkpoint formats. */
class StateStoreContractTest {
    private static final String SNAPSHOT_EACH = "spark.sql.streaming.stateStore.minDeltasForSnapshot";

    @TempDir
    java.nio.file.Path directory;

    private StateQuery start(Kind kind) throws IOException {
        return StateQuery.start(kind, directory);
    }

    @ParameterizedTest
    @EnumSource
    void putsGetsAndRemoves(Kind kind) throws IOException {
        try (Store store = start(kind).open()) {
            StateStore first = store.write(Version.NONE);
            assertNull(first.get(key("a", 1), DEFAULT));
            first.put(key("a", 1), value(1), DEFAULT);
            first.put(key("b", 1), value(2), DEFAULT);
            assertEquals(1, first.get(key("a", 1), DEFAULT).getInt(0));
            first.put(key("a", 1), value(3), DEFAULT);
            first.remove(key("b", 1), DEFAULT);
            first.remove(key("never", 1), DEFAULT);
            assertEquals(3, first.get(key("a", 1), DEFAULT).getInt(0));
            assertNull(first.get(key("b", 1), DEFAULT));
            assertFalse(first.hasCommitted());
            Version one = store.commit(first);
            assertTrue(first.hasCommitted());
            assertEquals(1, one.number());
            assertEquals(kind.format == 2, one.id() != null);
            assertEquals(Map.of("a", 3), store.read(one));
            assertEquals(1, first.metrics().numKeys());
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyVersionIsThereForAnotherExecutor(Kind kind) throws IOException {
        StateQuery query = start(kind);
        List<Version> versions = new ArrayList<>(List.of(Version.NONE));
        List<Map<String, Integer>> expected = new ArrayList<>(List.of(Map.of()));
        try (Store store = query.open()) {
            for (int batch = 1; batch <= 8; batch++) {
                Map<String, Integer> next = new TreeMap<>(expected.get(batch - 1));
                Version last = versions.get(batch - 1);
                if (batch % 3 == 0) {
                    versions.add(store.remove(last, "word" + (batch - 1)));
                    next.remove("word" + (batch - 1));
                } else {
                    versions.add(store.put(last, batch, "word" + batch, "all"));
                    next.put("word" + batch, batch);
                    next.put("all", batch);
                }
                expected.add(next);
            }
        }
        for (int batch : new int[] {8, 3, 1, 5}) {
            try (Store elsewhere = query.restart().open()) {
                assertEquals(expected.get(batch), elsewhere.read(versions.get(batch)), "version " + batch);
                assertEquals(expected.get(2), elsewhere.read(versions.get(2)), "and an older one after it");
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aVersionWithoutChangesIsAVersion(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version three;
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a");
            Version two = store.put(one, 2);
            three = store.put(two, 3, "b");
        }
        try (Store elsewhere = query.open()) {
            assertEquals(Map.of("a", 1, "b", 3), elsewhere.read(three));
        }
    }

    @ParameterizedTest
    @EnumSource
    void whatIsAbortedIsNotThere(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version two;
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a");
            StateStore aborted = store.write(one);
            aborted.put(key("lost", 4), value(9), DEFAULT);
            aborted.abort();
            assertThrows(Throwable.class, aborted::commit);
            two = store.put(one, 2, "b");
        }
        try (Store elsewhere = query.open()) {
            assertEquals(Map.of("a", 1, "b", 2), elsewhere.read(two));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aVersionThatIsCommittedAgainIsTheLaterOne(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version one;
        Version first;
        Version again;
        try (Store store = query.open()) {
            one = store.put(Version.NONE, 1, "a");
            first = store.put(one, 2, "first");
        }
        // The batch failed behind the store's commit, and runs again.
        try (Store store = query.restart().open()) {
            again = store.put(one, 3, "again");
        }
        assertEquals(kind.format == 2, !again.equals(first));
        try (Store elsewhere = query.restart().open()) {
            assertEquals(Map.of("a", 1, "again", 3), elsewhere.read(again));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aVersionThatNobodyCommittedIsAnError(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version one;
        try (Store store = query.open()) {
            one = store.put(Version.NONE, 1, "a");
        }
        try (Store store = query.open()) {
            Version none = new Version(2, kind.format == 2 ? "00000000-0000-0000-0000-000000000000" : null);
            Throwable error = assertThrows(Throwable.class, () -> store.read(none));
            assertTrue(error.getMessage().contains("CANNOT_LOAD_STATE_STORE"), error.toString());
            assertEquals(Map.of("a", 1), store.read(one), "and the store goes on");
        }
    }

    @ParameterizedTest
    @EnumSource
    void scansByPrefix(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version one;
        try (Store store = query.open()) {
            StateStore written = store.write(Version.NONE);
            for (int number = 0; number < 5; number++) {
                written.put(key("a", number), value(number), DEFAULT);
                written.put(key("b", number), value(10 + number), DEFAULT);
            }
            one = store.commit(written);
        }
        try (Store elsewhere = query.open()) {
            StateStore store = elsewhere.write(one);
            List<Integer> found = new ArrayList<>();
            Iterator<UnsafeRowPair> rows = store.prefixScan(word("b"), DEFAULT);
            while (rows.hasNext()) {
                found.add(rows.next().value().getInt(0));
            }
            assertEquals(List.of(10, 11, 12, 13, 14), found.stream().sorted().toList());
            store.abort();
        }
    }

    @ParameterizedTest
    @EnumSource
    void columnFamiliesAreApart(Kind kind) throws IOException {
        StateQuery query = start(kind).withColumnFamilies();
        Version two;
        try (Store store = query.open()) {
            StateStore first = store.write(Version.NONE);
            first.createColFamilyIfAbsent("other", StateQuery.KEY, StateQuery.VALUE, StateQuery.prefixed(), false, false);
            first.put(key("a", 1), value(1), DEFAULT);
            first.put(key("a", 1), value(2), "other");
            Version one = store.commit(first);
            StateStore second = store.write(one);
            second.put(key("b", 1), value(3), "other");
            second.remove(key("a", 1), DEFAULT);
            two = store.commit(second);
        }
        try (Store elsewhere = query.open()) {
            StateStore store = elsewhere.write(two);
            assertEquals(Map.of(), all(store, DEFAULT));
            store.createColFamilyIfAbsent("other", StateQuery.KEY, StateQuery.VALUE, StateQuery.prefixed(), false, false);
            assertEquals(Map.of("a", 2, "b", 3), all(store, "other"));
            store.removeColFamilyIfExists("other");
            Version three = elsewhere.commit(store);
            assertEquals(Map.of(), elsewhere.read(three));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aRangeIsDeleted(Kind kind) throws IOException {
        // Without column families Spark's changelogs know no ranges.
        StateQuery query = start(kind).ordered().withColumnFamilies();
        Version two;
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a", "bb", "ccc", "dddd");
            StateStore second = store.write(one);
            second.deleteRange(key("bb", 2), key("dddd", 4), DEFAULT);
            two = store.commit(second);
            assertEquals(Map.of("a", 1, "dddd", 1), store.read(two));
        }
        try (Store elsewhere = query.open()) {
            assertEquals(Map.of("a", 1, "dddd", 1), elsewhere.read(two));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aSnapshotAndTheChangesBehindItMakeAVersion(Kind kind) throws IOException {
        StateQuery query = start(kind).set(SNAPSHOT_EACH, "3");
        List<Version> versions = new ArrayList<>(List.of(Version.NONE));
        try (Store store = query.open()) {
            for (int batch = 1; batch <= 11; batch++) {
                versions.add(store.put(versions.get(batch - 1), batch, "word" + batch));
                store.provider().doMaintenance();
            }
        }
        for (int batch : new int[] {11, 10, 9}) {
            try (Store elsewhere = query.restart().open()) {
                Map<String, Integer> found = elsewhere.read(versions.get(batch));
                Map<String, Integer> expected = new TreeMap<>();
                IntStream.rangeClosed(1, batch).forEach(number -> expected.put("word" + number, number));
                assertEquals(expected, found);
            }
        }
        try (Store elsewhere = query.restart().open()) {
            assertThrows(Throwable.class, () -> elsewhere.read(versions.get(2)), "it was not to be retained");
        }
    }

    @ParameterizedTest
    @EnumSource
    void theChangeFeedTellsEachChange(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Version three;
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a", "b");
            Version two = store.put(one, 2, "a");
            three = store.remove(two, "b");
        }
        try (Store elsewhere = query.open()) {
            StateStoreChangeDataReader feed =
                    elsewhere.provider().getStateStoreChangeDataReader(2, 3, Option.empty(), three.uniqueId());
            List<String> found = new ArrayList<>();
            while (feed.hasNext()) {
                var row = feed.next();
                found.add(row._4() + " " + row._1() + " " + row._2().getUTF8String(0)
                        + (row._3() == null ? "" : " " + row._3().getInt(0)));
            }
            feed.closeIfNeeded();
            assertEquals(List.of("1 put_record a 2", "2 delete_record b"), found);
        }
    }

    @ParameterizedTest
    @EnumSource
    void aVersionIsReplayedFromAnOlderSnapshot(Kind kind) throws IOException {
        StateQuery query = start(kind).set("spark.sql.streaming.minBatchesToRetain", "100").set(SNAPSHOT_EACH, "2");
        List<Version> versions = new ArrayList<>(List.of(Version.NONE));
        try (Store store = query.open()) {
            for (int batch = 1; batch <= 6; batch++) {
                versions.add(store.put(versions.get(batch - 1), batch, "word" + batch));
                store.provider().doMaintenance();
            }
        }
        try (Store elsewhere = query.open()) {
            StateStore store = elsewhere.provider().replayStateFromSnapshot(
                    2, 5, true, versions.get(2).uniqueId(), versions.get(5).uniqueId());
            assertEquals(Map.of("word1", 1, "word2", 2, "word3", 3, "word4", 4, "word5", 5), all(store, DEFAULT));
            store.release();
        }
    }

    @ParameterizedTest
    @EnumSource
    void storesAndPartitionsAreApart(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Map<String, Version> versions = new TreeMap<>();
        for (int partition : new int[] {0, 3}) {
            for (String name : new String[] {DEFAULT, "left-keyToNumValues"}) {
                try (Store store = query.open(partition, name)) {
                    versions.put(partition + name, store.put(Version.NONE, partition + name.length(), "a"));
                }
            }
        }
        for (int partition : new int[] {0, 3}) {
            for (String name : new String[] {DEFAULT, "left-keyToNumValues"}) {
                try (Store store = query.open(partition, name)) {
                    assertEquals(Map.of("a", partition + name.length()), store.read(versions.get(partition + name)));
                }
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void manyKeysOfManyLengthsComeBack(Kind kind) throws IOException {
        StateQuery query = start(kind);
        Map<String, Integer> expected = new TreeMap<>();
        Version one;
        try (Store store = query.open()) {
            StateStore written = store.write(Version.NONE);
            for (int number = 0; number < 20_000; number++) {
                String word = Integer.toString(number * 7919, 36).repeat(1 + number % 9);
                written.put(key(word, word.length()), value(number), DEFAULT);
                expected.put(word, number);
            }
            one = store.commit(written);
        }
        try (Store elsewhere = query.open()) {
            assertEquals(expected, elsewhere.read(one));
        }
    }
}
