package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.QuorumStateStoreProvider;
import io.raftlake.spark.checkpoint.CheckpointFencedException;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import scala.Option;

/** What the quorum adds to Spark's provider: fencing, topics, trimming, errors. */
class QuorumStateTest {
    private static final String SNAPSHOT_EACH = "spark.sql.streaming.stateStore.minDeltasForSnapshot";

    @TempDir
    java.nio.file.Path directory;

    private StateQuery start(Kind kind) throws IOException {
        return StateQuery.start(kind, directory);
    }

    private static void own(StateQuery query) throws IOException {
        String key = "/fs-owner/" + query.root.toUri().getAuthority() + "/main";
        byte[] owner = ("{\"run\":\"" + query.run() + "\",\"host\":\"b\"}").getBytes(StandardCharsets.UTF_8);
        Spaces.SPACE.commit(new Txn().put(key, owner), Witness.put(key, owner));
    }

    /** The partition of the query's store; there must be one. */
    private static Partition partition(StateQuery query) throws IOException {
        String key = "/fs-state/" + query.root.toUri().getAuthority() + "/main";
        String id = StateTopics.Owner.decode(Spaces.SPACE.get(key).orElseThrow().value()).id();
        return new Partition(StateTopics.topic(id, query.id(0, StateQuery.DEFAULT)), 0);
    }

    private static boolean hasCause(Throwable error, Class<?> kind) {
        return error != null && (kind.isInstance(error) || hasCause(error.getCause(), kind));
    }

    @ParameterizedTest
    @EnumSource(names = {"QUORUM", "QUORUM_FORMAT_1"})
    void aRunThatLostTheCheckpointCommitsNothing(Kind kind) throws IOException {
        StateQuery older = start(kind);
        own(older);
        StateQuery newer = older.restart();
        Version two;
        try (Store zombie = older.open(); Store store = newer.open()) {
            Version one = zombie.put(Version.NONE, 1, "a");
            StateStore late = zombie.write(one);
            late.put(StateQuery.key("zombie", 6), StateQuery.value(9), StateQuery.DEFAULT);
            own(newer);
            two = store.put(one, 2, "real");
            if (kind == Kind.QUORUM_FORMAT_1) {
                Throwable error = assertThrows(Throwable.class, () -> zombie.commit(late));
                assertTrue(hasCause(error, CheckpointFencedException.class), error.toString());
            } else {
                // The look at the owner may be a second old: then the attempt is in the log, and nobody names its id.
                try {
                    zombie.commit(late);
                } catch (Exception fenced) {
                    assertTrue(hasCause(fenced, CheckpointFencedException.class), fenced.toString());
                }
            }
        }
        try (Store store = newer.open()) {
            assertEquals(Map.of("a", 1, "real", 2), store.read(two));
        }
        try (Store zombie = older.open()) {
            Throwable error = assertThrows(Throwable.class, () -> zombie.put(two, 3, "zombie"));
            assertTrue(hasCause(error, CheckpointFencedException.class), error.toString());
        }
    }

    @Test
    void aReaderMakesNothing() throws IOException {
        StateQuery query = start(Kind.QUORUM);
        try (Store store = query.open()) {
            assertEquals(Map.of(), store.read(Version.NONE));
            assertThrows(Throwable.class, () -> store.read(new Version(3, "x")));
            StateStore aborted = store.write(Version.NONE);
            aborted.abort();
        }
        String key = "/fs-state/" + query.root.toUri().getAuthority() + "/main";
        assertFalse(Spaces.SPACE.get(key).isPresent());
    }

    @ParameterizedTest
    @EnumSource(names = {"QUORUM", "QUORUM_FORMAT_1"})
    void changesBeforeTheOldestSnapshotGo(Kind kind) throws IOException {
        StateQuery query = start(kind).set(SNAPSHOT_EACH, "4").set("spark.sql.streaming.minBatchesToRetain", "5");
        List<Version> versions = new ArrayList<>(List.of(Version.NONE));
        try (Store store = query.open()) {
            long start = -1;
            for (int batch = 1; batch <= 19; batch++) {
                versions.add(store.put(versions.get(batch - 1), batch, "word" + batch));
                store.provider().doMaintenance();
                start = start < 0 ? Spaces.LOGS.earliest(partition(query)) : start;
                if (batch == 7) {
                    assertEquals(start, Spaces.LOGS.earliest(partition(query)), "version 3 is retained, and needs version 1");
                }
            }
            // Snapshots are those of 4, 8, 12 and 16: the newest five versions up to 16 need that of 12.
            long first = Spaces.LOGS.end(partition(query)) - 2 * 8;
            assertEquals(first, Spaces.LOGS.earliest(partition(query)), "versions 12 to 19 are left, of two records each");
        }
        try (Store elsewhere = query.restart().open()) {
            assertEquals(19, elsewhere.read(versions.get(19)).size());
            assertEquals(13, elsewhere.read(versions.get(13)).size());
            assertThrows(Throwable.class, () -> elsewhere.read(versions.get(11)));
        }
    }

    @Test
    void aFencedRunTrimsNothing() throws IOException {
        StateQuery query = start(Kind.QUORUM).set(SNAPSHOT_EACH, "1").set("spark.sql.streaming.minBatchesToRetain", "1");
        own(query);
        try (Store store = query.open()) {
            Version last = Version.NONE;
            for (int batch = 1; batch <= 6; batch++) {
                last = store.put(last, batch, "a");
            }
            long start = Spaces.LOGS.earliest(partition(query));
            own(query.restart());
            try {
                store.provider().doMaintenance();
            } catch (Exception fenced) {
                assertTrue(hasCause(fenced, CheckpointFencedException.class), fenced.toString());
            }
            assertEquals(start, Spaces.LOGS.earliest(partition(query)));
        }
    }

    @Test
    void aVersionOfSeveralPiecesIsOneVersion() throws IOException {
        StateQuery query = start(Kind.QUORUM);
        int words = 60_000;
        Version one;
        Version two;
        try (Store store = query.open()) {
            StateStore written = store.write(Version.NONE);
            for (int number = 0; number < words; number++) {
                written.put(StateQuery.key("word" + number, number), StateQuery.value(number), StateQuery.DEFAULT);
            }
            one = store.commit(written);
            two = store.put(one, 1, "last");
        }
        long bytes = (long) words * 60;
        assertTrue(bytes > Changelog.PIECE_BYTES, "there are several pieces");
        assertTrue(Spaces.LOGS.end(partition(query)) > words + 3, "each with a trailer");
        try (Store elsewhere = query.open()) {
            Map<String, Integer> found = elsewhere.read(two);
            assertEquals(words + 1, found.size());
            assertEquals(words - 1, found.get("word" + (words - 1)));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"SPARK", "SPARK_FORMAT_1"})
    void stateThatSparkWroteToFilesIsRead(Kind sparks) throws IOException {
        StateQuery query = StateQuery.start(sparks, directory);
        Version two;
        try (Store store = query.open()) {
            Version one = store.put(Version.NONE, 1, "a");
            two = store.put(one, 2, "b");
        }
        StateQuery imported = start(sparks == Kind.SPARK ? Kind.QUORUM : Kind.QUORUM_FORMAT_1);
        Path state = new Path(query.root, "state");
        Path copy = new Path(imported.root, "state");
        assertTrue(FileUtil.copy(query.files(), state, imported.files(), copy, false, imported.conf));
        Version three;
        try (Store store = imported.open()) {
            assertEquals(Map.of("a", 1, "b", 2), store.read(two));
            three = store.put(two, 3, "c");
        }
        try (Store elsewhere = imported.restart().open()) {
            assertEquals(Map.of("a", 1, "b", 2, "c", 3), elsewhere.read(three));
        }
    }

    @Test
    void stateOutsideOfACheckpointIsAnError() throws IOException {
        StateQuery query = start(Kind.QUORUM);
        assertTrue(query.files().delete(new Path(query.root, "metadata"), false));
        try (Store store = query.open()) {
            Throwable error = assertThrows(Throwable.class, () -> store.put(Version.NONE, 1, "a"));
            assertTrue(error.getCause().getMessage().contains("no file 'metadata'"), error.getCause().toString());
        }
    }

    @Test
    void anUnreachableQuorumFailsTheCommitWithOneError() throws IOException {
        StateQuery query = start(Kind.QUORUM);
        query.conf.set(Bootstrap.SETTING, "127.0.0.1:1");
        query.conf.set("raftlake.request.timeout.ms", "300");
        QuorumStateStoreProvider provider = new QuorumStateStoreProvider();
        provider.init(query.id(0, StateQuery.DEFAULT), StateQuery.KEY, StateQuery.VALUE, StateQuery.prefixed(), false,
                query.storeConf(), query.conf, false, Option.empty());
        try {
            StateStore store = provider.getStore(0, Option.empty(), false, false);
            store.put(StateQuery.key("a", 1), StateQuery.value(1), StateQuery.DEFAULT);
            Throwable error = assertThrows(Throwable.class, store::commit);
            assertTrue(hasCause(error, QuorumUnavailableException.class), error.toString());
            store.abort();
        } finally {
            provider.close();
        }
    }
}
