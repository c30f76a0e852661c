package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.fs.BlobCopies;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.LogBlobStore;
import io.raftlake.spark.fs.Node;
import io.raftlake.spark.kit.Files;
import io.raftlake.spark.kit.MemoryLogs;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import io.raftlake.spark.log.Bootstrap;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Snapshots of other executors on the local disk. The process has one standby; a store that is opened while the setting is off
 * stands for one of another executor.
 */
@Tag("memory")
class StandbyTest {
    private static final long PLENTY = 1 << 30;
    private static final Standby STANDBY = Standby.OF_PROCESS;

    @TempDir
    java.nio.file.Path directory;

    private StateQuery query;

    /** A query all of whose files are blobs, and each version of which is a snapshot after maintenance. */
    private void start(Kind kind) throws IOException {
        query = StateQuery.start(kind, directory);
        query.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
        query.set("spark.sql.streaming.minBatchesToRetain", "10");
        query.conf.set("fs.raftlake.impl.disable.cache", "true");
        query.conf.set(Bootstrap.SETTING, "memory:1");
        query.conf.set(FsSettings.INLINE_BYTES, "0");
    }

    @AfterEach
    void nothingStays() {
        STANDBY.look();
        assertEquals(0, BlobCopies.OF_PROCESS.bytes());
    }

    private Store elsewhere(int partition) {
        query.conf.unset(FsSettings.STANDBY_BYTES);
        return query.open(partition, StateQuery.DEFAULT);
    }

    private Store here(int partition, long bytes) {
        query.conf.set(FsSettings.STANDBY_BYTES, Long.toString(bytes));
        return query.open(partition, StateQuery.DEFAULT);
    }

    private static Version snapshot(Store store, Version on, int value, String... words) {
        Version made = store.put(on, value, words);
        store.provider().doMaintenance();
        return made;
    }

    /** The places of a partition's data files. */
    private Set<String> tables(int partition) throws IOException {
        Set<String> found = new TreeSet<>();
        for (FileStatus each : query.files().listStatus(new Path(query.root, "state/0/" + partition + "/SSTs"))) {
            Path path = each.getPath();
            String key = "/fs/" + path.toUri().getAuthority() + path.toUri().getPath();
            found.add(Node.decode(Spaces.SPACE.get(key).orElseThrow()).blob().uri());
        }
        return found;
    }

    private static long copied(Set<String> tables) {
        return tables.stream().filter(BlobCopies.OF_PROCESS::has).count();
    }

    private static void lose(Set<String> tables) throws IOException {
        for (String uri : tables) {
            assertTrue(new LogBlobStore(Spaces.LOGS).delete(uri));
        }
        ((MemoryLogs) Spaces.LOGS).compact(LogBlobStore.TOPIC);
    }

    @ParameterizedTest
    @EnumSource(names = {"QUORUM", "QUORUM_FORMAT_1"})
    void whoTakesOverReadsItsOwnDisk(Kind kind) throws IOException {
        start(kind);
        Version two;
        try (Store owner = elsewhere(0)) {
            Version one = snapshot(owner, Version.NONE, 1, "a", "b");
            two = snapshot(owner, one, 2, "c");
        }
        try (Store mine = here(1, PLENTY)) {
            STANDBY.look();
            lose(tables(0));
            try (Store takeover = query.open(0, StateQuery.DEFAULT)) {
                // A round between the opening and the load, which takes its time.
                STANDBY.look();
                assertTrue(copied(tables(0)) > 0, "Spark would replay all changes");
                assertEquals(Map.of("a", 1, "b", 1, "c", 2), takeover.read(two));
                assertEquals(3, takeover.put(two, 3, "d").number());
                STANDBY.look();
                assertEquals(0, copied(tables(0)), "the copies have served");
            }
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void whatRunsHereIsNotCopied() throws IOException {
        start(Kind.QUORUM);
        try (Store owner = elsewhere(0); Store mine = here(1, PLENTY)) {
            snapshot(owner, Version.NONE, 1, "a");
            snapshot(mine, Version.NONE, 1, "b");
            STANDBY.look();
            assertEquals(1, copied(tables(0)));
            assertEquals(0, copied(tables(1)));
        }
    }

    @Test
    void aPartitionThatIsOpenTwiceRunsHereUntilBothAreClosed() throws IOException {
        start(Kind.QUORUM);
        try (Store mine = here(1, PLENTY); Store other = here(0, PLENTY)) {
            snapshot(other, Version.NONE, 1, "a");
            here(0, PLENTY).close();
            STANDBY.look();
            assertEquals(0, copied(tables(0)));
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void theTwoNewestSnapshotsAreKept() throws IOException {
        start(Kind.QUORUM);
        compactEach();
        Version last = Version.NONE;
        Set<String> before = Set.of();
        Set<String> older = Set.of();
        try (Store owner = elsewhere(0); Store mine = here(1, PLENTY)) {
            for (int number = 1; number <= 11; number++) {
                last = snapshot(owner, last, number, "a");
                Set<String> newest = new TreeSet<>(tables(0));
                newest.removeAll(before);
                before = tables(0);
                STANDBY.look();
                assertEquals(1, copied(newest), "snapshot " + number);
                assertEquals(older.size(), copied(older), "snapshot " + (number - 1));
                assertEquals(Math.min(number, 2), copied(before), "all copies at snapshot " + number);
                older = newest;
            }
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void whatIsNewerTakesTheRoomOfWhatIsOlder() throws IOException {
        start(Kind.QUORUM);
        compactEach();
        try (Store owner = elsewhere(0)) {
            Version one = snapshot(owner, Version.NONE, 1, "a");
            Set<String> first = tables(0);
            long bytes = query.files().listStatus(new Path(query.root, "state/0/0/SSTs"))[0].getLen();
            try (Store mine = here(1, bytes + bytes / 2)) {
                STANDBY.look();
                assertEquals(bytes, BlobCopies.OF_PROCESS.bytes());
                snapshot(owner, one, 2, "a");
                STANDBY.look();
                assertEquals(0, copied(first));
                assertEquals(1, copied(tables(0)));
                query.conf.set(FsSettings.STANDBY_BYTES, Long.toString(bytes / 2));
                STANDBY.look();
                assertEquals(0, BlobCopies.OF_PROCESS.bytes());
                assertEquals(Map.of(), mine.read(Version.NONE));
            }
        }
    }

    @Test
    void theNewestSnapshotOfEachPartitionComesBeforeOlderOnes() throws IOException {
        start(Kind.QUORUM);
        compactEach();
        try (Store zero = elsewhere(0); Store two = elsewhere(2)) {
            Version one = snapshot(zero, Version.NONE, 1, "a");
            snapshot(zero, one, 2, "a");
            snapshot(two, Version.NONE, 1, "a");
            long bytes = query.files().listStatus(new Path(query.root, "state/0/0/SSTs"))[0].getLen();
            try (Store mine = here(1, 2 * bytes + bytes / 2)) {
                STANDBY.look();
                assertEquals(1, copied(tables(0)));
                assertEquals(1, copied(tables(2)));
                assertEquals(Map.of(), mine.read(Version.NONE));
            }
        }
    }

    /** Each snapshot is one file of its own. */
    private void compactEach() {
        query.set("spark.sql.streaming.stateStore.rocksdb.compactOnCommit", "true");
    }

    @Test
    void offByDefault() throws IOException {
        start(Kind.QUORUM);
        try (Store owner = elsewhere(0); Store mine = elsewhere(1)) {
            snapshot(owner, Version.NONE, 1, "a");
            mine.provider().doMaintenance();
            STANDBY.look();
            assertEquals(0, copied(tables(0)));
        }
    }

    @Test
    void theCopiesOfACheckpointThatIsGoneGo() throws IOException {
        start(Kind.QUORUM);
        try (Store owner = elsewhere(0)) {
            snapshot(owner, Version.NONE, 1, "a");
        }
        try (Store mine = here(1, PLENTY)) {
            STANDBY.look();
            assertTrue(BlobCopies.OF_PROCESS.bytes() > 0);
            assertTrue(query.files().delete(query.root, true));
            STANDBY.look();
            assertEquals(0, BlobCopies.OF_PROCESS.bytes());
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void aRoundThatFailsKeepsTheCopiesAndTheNextOneGoesOn() throws IOException {
        start(Kind.QUORUM);
        try (Store owner = elsewhere(0); Store mine = here(1, PLENTY)) {
            Version one = snapshot(owner, Version.NONE, 1, "a");
            STANDBY.look();
            Set<String> first = tables(0);
            Path strange = new Path(query.root, "state/0/0/7_strange.zip");
            ByteArrayOutputStream zip = new ByteArrayOutputStream();
            try (ZipOutputStream entries = new ZipOutputStream(zip)) {
                entries.putNextEntry(new ZipEntry("metadata"));
                entries.write("v99\n".getBytes());
            }
            Files.write(query.files(), strange, zip.toByteArray(), false);
            STANDBY.look();
            assertEquals(first.size(), copied(first));
            assertTrue(query.files().delete(strange, false));
            snapshot(owner, one, 2, "b");
            STANDBY.look();
            assertEquals(tables(0).size(), copied(tables(0)));
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void aCopyThatWasLostIsMadeAgain() throws IOException {
        start(Kind.QUORUM);
        try (Store owner = elsewhere(0); Store mine = here(1, PLENTY)) {
            snapshot(owner, Version.NONE, 1, "a");
            STANDBY.look();
            BlobCopies.OF_PROCESS.retain(Set.of());
            STANDBY.look();
            assertEquals(1, copied(tables(0)));
            assertEquals(Map.of(), mine.read(Version.NONE));
        }
    }

    @Test
    void maintenanceFollowsByItself() throws Exception {
        start(Kind.QUORUM);
        query.set("spark.sql.streaming.stateStore.maintenanceInterval", "10");
        Version last = Version.NONE;
        try (Store owner = elsewhere(0); Store mine = here(1, PLENTY)) {
            for (int number = 1; number <= 2; number++) {
                last = snapshot(owner, last, number, "a");
                Set<String> all = tables(0);
                long until = System.nanoTime() + 10_000_000_000L;
                while (copied(all) < all.size() && System.nanoTime() < until) {
                    mine.provider().doMaintenance();
                    Thread.sleep(10);
                }
                assertEquals(all.size(), copied(all), "snapshot " + number);
            }
        }
    }
}
