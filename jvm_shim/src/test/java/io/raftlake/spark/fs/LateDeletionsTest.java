package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.read;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.kit.ScriptedNode.Step;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Deletions that go with the next file: what the writer sees, what others see, and what goes wrong in between. */
@Tag("memory")
class LateDeletionsTest {
    private static final String DIRECTORY = "/fs/p/d";

    private final MemoryKeySpace space = new MemoryKeySpace();
    private final Configuration conf = new Configuration(false);
    private ScriptedNode node;
    private FileSystem system;
    private FileSystem others;
    private QuorumFiles files;

    @BeforeEach
    void open() throws IOException {
        node = new ScriptedNode(space);
        node.addTo(conf);
        system = FileSystem.newInstance(URI.create("raftlake://p/"), conf);
        others = FileSystem.newInstance(URI.create("raftlake://p/"), conf);
        files = ((RaftlakeFileSystem) system).files();
        files.makeDirectories(at("d"));
    }

    @AfterEach
    void close() throws IOException {
        system.close();
        others.close();
        node.close();
    }

    private static Path at(String path) {
        return new Path("raftlake://p/" + path);
    }

    private void put(String... names) throws IOException {
        for (String name : names) {
            try (OutputStream out = files.createAtClose(at("d/" + name), false)) {
                out.write(bytes(10));
            }
        }
    }

    private void deleteLater(String... names) throws IOException {
        for (String name : names) {
            files.deleteLater(at("d/" + name));
        }
    }

    private void requireThere(String... names) {
        List<String> keys = Arrays.stream(names).map(name -> DIRECTORY + "/" + name).toList();
        assertEquals(keys, space.keys(DIRECTORY + "/"));
    }

    @Test
    void aDeletionGoesWithTheNextFile() throws IOException {
        put("1", "2", "3");
        node.requests.clear();
        deleteLater("1", "2");
        assertEquals(List.of(), node.requests);
        requireThere("1", "2", "3");
        put("4");
        requireThere("3", "4");
        assertEquals(1, node.requests.size(), node.requests.toString());
        // And once only.
        put("5", "6");
        assertEquals(3, node.requests.size(), node.requests.toString());
        requireThere("3", "4", "5", "6");
    }

    @Test
    void whoeverLooksHereFindsItGone() throws IOException {
        put("1", "2", "3");
        deleteLater("1");
        assertFalse(files.exists(at("d/1")));
        requireThere("2", "3");
        deleteLater("2");
        assertThrows(FileNotFoundException.class, () -> files.open(at("d/2")));
        requireThere("3");
        deleteLater("3");
        assertEquals(0, files.list(at("d")).length);
        requireThere();
    }

    @Test
    void othersSeeItUntilThen() throws IOException {
        put("1");
        deleteLater("1");
        assertArrayEquals(bytes(10), read(others, at("d/1")));
        put("2");
        assertFalse(others.exists(at("d/1")));
    }

    @Test
    void aDirectoryThatIsDeletedTakesThemAlong() throws IOException {
        put("1", "2");
        deleteLater("1");
        assertTrue(files.delete(at("d"), true));
        assertEquals(List.of(), space.keys("/fs/"));
        put("3");
        requireThere("3");
    }

    @Test
    void aDeletionThatComesTwiceIsOne() throws IOException {
        put("1");
        deleteLater("1", "1");
        requireThere();
        put("2");
        deleteLater("2");
        assertFalse(files.delete(at("d/2"), false));
        requireThere();
    }

    @Test
    void notMoreThanSomeWait() throws IOException {
        for (int file = 10; file < 10 + LateDeletions.FILES_MAX; file++) {
            put("" + file);
        }
        put("last");
        node.requests.clear();
        for (int file = 10; file < 9 + LateDeletions.FILES_MAX; file++) {
            deleteLater("" + file);
        }
        assertEquals(List.of(), node.requests);
        deleteLater("" + (9 + LateDeletions.FILES_MAX));
        requireThere("last");
        assertEquals(1, node.requests.size(), node.requests.toString());
    }

    @Test
    void aFileThatSomebodyElsePutIsDeletedAtOnce() throws IOException {
        write(others, at("d/1"), bytes(10), false);
        deleteLater("1");
        requireThere();
    }

    @Test
    void theNameMayBeTakenAgain() throws IOException {
        put("1", "2");
        deleteLater("1");
        put("1");
        requireThere("1", "2");
        put("3");
        requireThere("1", "2", "3");
        // A stream that was opened before, for a file that replaces another one.
        OutputStream opened = files.create(at("d/1"), true, true);
        deleteLater("1");
        opened.close();
        put("4");
        requireThere("1", "2", "3", "4");
        assertEquals(0, read(others, at("d/1")).length);
    }

    @Test
    void aLostAnswerIsLookedUp() throws IOException {
        put("1", "2");
        deleteLater("1");
        node.nextWrites(Step.lostAfter());
        put("3");
        requireThere("2", "3");
        deleteLater("2");
        node.nextWrites(Step.lostBefore());
        put("4");
        requireThere("3", "4");
        deleteLater("3");
        node.nextWrites(Step.lostAfter());
        assertFalse(files.exists(at("d/3")));
        requireThere("4");
    }

    /** The file of somebody else is not taken away, and ours is put all the same. */
    @Test
    void whatOthersChangedIsTheirs() throws IOException {
        put("1", "2", "3");
        deleteLater("1", "2", "3");
        write(others, at("d/1"), bytes(20), true);
        assertTrue(others.delete(at("d/2"), false));
        put("4");
        requireThere("1", "4");
        assertArrayEquals(bytes(20), read(others, at("d/1")));
        deleteLater("4");
        write(others, at("d/4"), bytes(20), true);
        assertTrue(files.exists(at("d/4")));
        put("5");
        requireThere("1", "4", "5");
    }

    @Test
    void aFileThatIsRefusedDeletesNothing() throws IOException {
        put("1");
        write(others, at("d/2"), bytes(10), false);
        deleteLater("1");
        OutputStream late = files.createAtClose(at("d/2"), false);
        assertThrows(FileAlreadyExistsException.class, late::close);
        requireThere("1", "2");
        put("3");
        requireThere("2", "3");
    }
}
