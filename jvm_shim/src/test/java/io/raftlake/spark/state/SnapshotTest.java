package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.kit.Files;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import io.raftlake.spark.kit.StateQuery.Kind;
import io.raftlake.spark.kit.StateQuery.Store;
import io.raftlake.spark.kit.StateQuery.Version;
import io.raftlake.spark.state.Changelog.Name;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Which snapshot a load begins with, and that its files are read before Spark asks for them. */
@Timeout(60)
class SnapshotTest {
    @TempDir
    java.nio.file.Path directory;

    private StateQuery query;
    private Path store;

    @BeforeEach
    void start() throws IOException {
        query = StateQuery.start(Kind.QUORUM, directory);
        query.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1");
        store = new Path(query.root, "state/0/0");
    }

    @Test
    void theNewestOfTheVersionsThatHasAZipIsTaken() {
        List<String> names = List.of("9_a.zip", "10_b.zip", "10_x.zip", "11_c.zip.tmp", "SSTs");
        List<Name> versions = List.of(new Name(9, "a"), new Name(10, "b"), new Name(11, "c"));
        assertEquals(Optional.of(new Path(store, "10_b.zip")), Snapshot.newest(store, names, versions));
        assertEquals(Optional.of(new Path(store, "9_a.zip")), Snapshot.newest(store, names, List.of(new Name(9, "a"))));
        assertEquals(Optional.empty(), Snapshot.newest(store, names, List.of(new Name(9, "b"))));
        assertEquals(Optional.empty(), Snapshot.newest(store, List.of(), versions));
        assertEquals(Optional.empty(), Snapshot.newest(store, names, List.of()));
    }

    @Test
    void whereNoDirectoryIsNoNamesAre() throws IOException {
        assertEquals(List.of(), Snapshot.names(((RaftlakeFileSystem) query.files()).files(), store));
    }

    private Version snapshot(Version on, int value, String word) {
        try (Store open = query.open()) {
            Version made = open.put(on, value, word);
            open.provider().doMaintenance();
            return made;
        }
    }

    /** The zip of a version first, then its data files. */
    private List<Path> files(Version version) throws IOException {
        Path zip = new Path(store, version.number() + "_" + version.id() + ".zip");
        List<Path> found = new ArrayList<>(List.of(zip));
        found.addAll(Snapshot.dataFiles(store, query.files().open(zip)).keySet());
        return found;
    }

    private void deleteAll() throws IOException {
        FileSystem files = query.files();
        for (Path each : List.of(store, new Path(store, "SSTs"))) {
            for (FileStatus file : files.listStatus(each)) {
                assertTrue(file.isDirectory() || files.delete(file.getPath(), false));
            }
        }
    }

    private StoreLog log() {
        return new StoreLog(query.id(0, StateQuery.DEFAULT), (fileSystem, conf) -> Spaces.LOGS, query.conf);
    }

    private StoreLog look() throws IOException {
        StoreLog log = log();
        log.openAhead();
        assertTrue(log.find().isPresent());
        return log;
    }

    private boolean opens(Path path) throws IOException {
        try {
            return Files.read(query.files(), path).length > 0;
        } catch (FileNotFoundException deleted) {
            return false;
        }
    }

    /**
     * Whether files are in memory: whether they open when they are deleted. The zip is there when its data files are begun, and
     * these are read in turn: all are there when the last one is.
     */
    private boolean areHeld(List<Path> files) throws IOException {
        int last = files.size() - 1;
        assertTrue(last > 1, files.toString());
        assertTrue(opens(files.get(0)));
        assertTrue(opens(files.get(last)));
        deleteAll();
        boolean isHeld = opens(files.get(1));
        for (Path other : files.subList(2, last)) {
            assertEquals(isHeld, opens(other));
        }
        for (Path each : files) {
            assertFalse(opens(each), "a file is handed out once");
        }
        return isHeld;
    }

    /** Two snapshots. The newer one has two data files. */
    private Version twoSnapshots() {
        return snapshot(snapshot(Version.NONE, 1, "a"), 2, "b");
    }

    @Test
    void theFilesOfTheNewestSnapshotAreReadAhead() throws IOException {
        Version two = twoSnapshots();
        StoreLog log = look();
        assertTrue(areHeld(files(two)));
        log.loaded();
    }

    @Test
    void aVersionBehindTheSnapshotIsBuiltOnIt() throws IOException {
        Version two = twoSnapshots();
        query.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1000");
        try (Store open = query.open()) {
            assertEquals(4, open.put(open.put(two, 3, "c"), 4, "d").number());
        }
        List<Path> files = files(two);
        look();
        assertTrue(areHeld(files));
    }

    @Test
    void behindTheLoadNothingIsHeld() throws IOException {
        List<Path> files = files(twoSnapshots());
        look().loaded();
        assertFalse(areHeld(files));
    }

    @Test
    void aLookThatEndsBehindTheLoadHoldsNothing() throws IOException {
        List<Path> files = files(twoSnapshots());
        StoreLog log = log();
        log.loaded();
        log.openAhead();
        assertTrue(log.find().isPresent());
        assertFalse(areHeld(files));
    }

    @Test
    void aLoadOfAnotherVersionLetsGoOfTheNewest() throws IOException {
        Version one = snapshot(Version.NONE, 1, "a");
        List<Path> files = files(snapshot(one, 2, "b"));
        try (Store open = query.open()) {
            assertEquals(Map.of("a", 1), open.read(one));
            assertFalse(areHeld(files));
        }
    }

    @Test
    void aStoreThatIsClosedWithoutALoadLetsGo() throws IOException {
        List<Path> files = files(twoSnapshots());
        try (Store open = query.open()) {
            // Who asks for the newest version waits for the look.
            assertEquals(2, open.provider().rocksDB().fileManager().getLatestVersion());
        }
        assertFalse(areHeld(files));
    }
}
