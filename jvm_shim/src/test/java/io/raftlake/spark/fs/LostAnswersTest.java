package io.raftlake.spark.fs;

import static io.raftlake.spark.kit.Files.bytes;
import static io.raftlake.spark.kit.Files.read;
import static io.raftlake.spark.kit.Files.write;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.kit.ScriptedNode.Step;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.net.URI;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files over a node whose answers get lost, and under writers who come between a look and a change. */
@Tag("memory")
class LostAnswersTest {
    private final MemoryKeySpace space = new MemoryKeySpace();
    private final Configuration conf = new Configuration(false);

    @TempDir
    java.nio.file.Path directory;

    private ScriptedNode node;
    private FileSystem files;

    @BeforeEach
    void open() throws IOException {
        node = new ScriptedNode(space);
        node.addTo(conf);
        files = FileSystem.newInstance(URI.create("raftlake://p/"), conf);
    }

    @AfterEach
    void close() throws IOException {
        files.close();
        node.close();
    }

    private static Path at(String path) {
        return new Path("raftlake://p/" + path);
    }

    @Test
    void aCreationWhoseAnswerIsLostSucceedsOnce() throws IOException {
        node.nextWrites(Step.lostAfter());
        write(files, at("f"), bytes(10), false);
        assertArrayEquals(bytes(10), read(files, at("f")));
        node.nextWrites(Step.lostBefore());
        write(files, at("g"), bytes(10), false);
        assertArrayEquals(bytes(10), read(files, at("g")));
    }

    /** Two files with the same content are told apart by their ids. */
    @Test
    void theFileOfAnotherWriterIsNotTakenForOurs() throws IOException {
        FSDataOutputStream mine = files.create(at("f"), false);
        mine.write(bytes(10));
        write(files, at("f"), bytes(10), false);
        node.nextWrites(Step.lostBefore());
        assertThrows(FileAlreadyExistsException.class, mine::close);
    }

    @Test
    void renamesAndDeletionsAreReadBack() throws IOException {
        write(files, at("d/f"), bytes(10), false);
        node.nextWrites(Step.lostAfter());
        assertTrue(files.rename(at("d/f"), at("d/g")));
        node.nextWrites(Step.lostAfter());
        assertTrue(files.rename(at("d"), at("e")));
        node.nextWrites(Step.lostAfter());
        assertTrue(files.delete(at("e/g"), false));
        node.nextWrites(Step.lostAfter());
        assertTrue(files.delete(at("e"), false));
        node.nextWrites(Step.lostAfter());
        assertTrue(files.mkdirs(at("e/f")));
        node.nextWrites(Step.lostAfter());
        assertTrue(files.delete(at("e"), true));
        assertEquals(0, space.keys("/fs/").size());
    }

    @Test
    void whoeverPutASmallFileDeletesItWithoutALook() throws IOException {
        write(files, at("d/f"), bytes(10), false);
        write(files, at("d/g"), bytes(10), false);
        node.requests.clear();
        assertTrue(files.delete(at("d/f"), false));
        assertEquals(1, node.requests.size(), node.requests.toString());
        node.nextWrites(Step.lostAfter());
        assertTrue(files.delete(at("d/g"), false));
        assertFalse(files.delete(at("d/f"), false));
        assertEquals(List.of("/fs/p/d"), space.keys("/fs/"));
    }

    /** Its version is that of another file, or of none. */
    @Test
    void aSmallFileThatOthersChangedSinceIsDeletedBehindALook() throws IOException {
        write(files, at("d/f"), bytes(10), false);
        write(files, at("d/gone"), bytes(10), false);
        write(files, at("d/moved"), bytes(10), false);
        try (FileSystem others = FileSystem.newInstance(URI.create("raftlake://p/"), conf)) {
            write(others, at("d/f"), bytes(20), true);
            assertTrue(others.delete(at("d/gone"), false));
            assertTrue(others.rename(at("d/moved"), at("d/elsewhere")));
            assertTrue(others.mkdirs(at("d/gone/full")));
        }
        assertTrue(files.delete(at("d/f"), false));
        assertFalse(files.delete(at("d/moved"), false));
        assertTrue(files.exists(at("d/elsewhere")));
        assertThrows(IOException.class, () -> files.delete(at("d/gone"), false));
        assertTrue(files.exists(at("d/gone/full")));
    }

    @Test
    void aBlobKeepsItsIntentUntilThePointerIsThere() throws IOException {
        conf.set("raftlake.fs.base.uri", directory.toUri().toString());
        try (FileSystem large = FileSystem.newInstance(URI.create("raftlake://p/"), conf)) {
            node.nextWrites(Step.lostAfter(), Step.lostAfter());
            write(large, at("f"), bytes(100_000), false);
            assertArrayEquals(bytes(100_000), read(large, at("f")));
            assertEquals(0, space.keys("/fs-blobs/").size());
            // The pointer may or may not come: its blob is not touched.
            FSDataOutputStream out = large.create(at("g"));
            out.write(bytes(100_000));
            for (int i = 0; i < 1000; i++) {
                node.nextWrites(Step.lostBefore());
            }
            assertThrows(IOException.class, out::close);
            assertEquals(1, space.keys("/fs-blobs/").size());
        }
    }

    @Test
    void anUnreachableQuorumIsOneClearError() throws IOException {
        node.close();
        String told = assertThrows(IOException.class, () -> files.exists(at("f"))).getMessage();
        assertTrue(told.contains(node.address()) && told.contains("raftlake.http.servers"), told);
    }

    // --- writers that come between ---------------------------------------------------------------------------------------

    /** Lets somebody act before the next commit. */
    private static final class Between implements KeySpace {
        private interface Act {
            void run() throws IOException;
        }

        private final KeySpace space;
        private Act act;

        Between(KeySpace space) {
            this.space = space;
        }

        @Override
        public Optional<io.raftlake.spark.quorum.Entry> get(String key) throws IOException {
            return space.get(key);
        }

        @Override
        public Page list(ListRequest request) throws IOException {
            return space.list(request);
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            if (act != null) {
                Act now = act;
                act = null;
                now.run();
            }
            return space.commit(txn, witness);
        }

        @Override
        public String describe() {
            return "between";
        }
    }

    private final Between between = new Between(space);
    private final Namespace names = new Namespace(between, new Blobs(between, null, null), Fence.NONE);

    private static Location in(String path) throws IOException {
        return Location.of("p", path);
    }

    @Test
    void aFileThatAppearsDuringARenameOfItsDirectoryIsNotLost() throws IOException {
        write(files, at("d/f"), bytes(1), false);
        between.act = () -> write(files, at("d/late"), bytes(2), false);
        new Moves(names).move(in("/d"), in("/e"), false);
        assertArrayEquals(bytes(2), read(files, at("e/late")));
        assertFalse(files.exists(at("d")));
        files.mkdirs(at("empty"));
        between.act = () -> write(files, at("empty/late"), bytes(2), false);
        new Moves(names).move(in("/empty"), in("/full"), false);
        assertArrayEquals(bytes(2), read(files, at("full/late")));
    }

    @Test
    void aFileThatChangesDuringARenameOfItsDirectoryIsMovedAsItIs() throws IOException {
        write(files, at("d/f"), bytes(1), false);
        write(files, at("d/g"), bytes(1), false);
        between.act = () -> write(files, at("d/f"), bytes(9), true);
        new Moves(names).move(in("/d"), in("/e"), false);
        assertArrayEquals(bytes(9), read(files, at("e/f")));
        between.act = () -> files.delete(at("e/g"), false);
        new Moves(names).move(in("/e"), in("/d"), false);
        assertFalse(files.exists(at("d/g")));
    }

    @Test
    void aRenameThatFindsItsTargetTakenDoesNotOverwrite() throws IOException {
        write(files, at("f"), bytes(1), false);
        between.act = () -> write(files, at("g"), bytes(2), false);
        assertThrows(FileAlreadyExistsException.class, () -> new Moves(names).move(in("/f"), in("/g"), false));
        assertArrayEquals(bytes(2), read(files, at("g")));
        assertArrayEquals(bytes(1), read(files, at("f")));
    }

    @Test
    void aRenameIntoADirectoryThatGoesFails() throws IOException {
        write(files, at("f"), bytes(1), false);
        files.mkdirs(at("d"));
        between.act = () -> files.delete(at("d"), true);
        assertThrows(java.io.FileNotFoundException.class, () -> new Moves(names).move(in("/f"), in("/d/f"), false));
        assertTrue(files.exists(at("f")));
    }

    @Test
    void aDirectoryThatFillsUpIsNotDeletedAsEmpty() throws IOException {
        files.mkdirs(at("d"));
        between.act = () -> write(files, at("d/late"), bytes(2), false);
        assertThrows(IOException.class, () -> new Deletions(names).delete(in("/d"), false));
        assertTrue(files.exists(at("d/late")));
    }

    @Test
    void aFileThatAppearsDuringARecursiveDeletionGoesToo() throws IOException {
        write(files, at("d/f"), bytes(1), false);
        between.act = () -> write(files, at("d/late"), bytes(2), false);
        assertTrue(new Deletions(names).delete(in("/d"), true));
        assertEquals(0, space.keys("/fs/").size());
    }

    @Test
    void theBlobOfAFileThatAppearsDuringARecursiveDeletionGoesToo() throws IOException {
        conf.set("raftlake.fs.base.uri", directory.toUri().toString());
        try (FileSystem large = FileSystem.newInstance(URI.create("raftlake://p/"), conf)) {
            Blobs blobs = new Blobs(between, new HadoopBlobStore(directory.toUri().toString(), conf), null);
            write(large, at("d/f"), bytes(100_000), false);
            between.act = () -> write(large, at("d/late"), bytes(100_000), false);
            assertTrue(new Deletions(new Namespace(between, blobs, Fence.NONE)).delete(in("/d"), true));
        }
        assertEquals(0, space.keys("/fs/").size());
        try (var left = java.nio.file.Files.list(directory.resolve("p"))) {
            assertEquals(List.of(), left.filter(file -> !file.getFileName().toString().endsWith(".crc")).toList());
        }
    }

    @Test
    void twoThatMakeOneDirectoryBothSucceed() throws IOException {
        between.act = () -> files.mkdirs(at("a/b"));
        names.makeDirectories(in("/a/b/c"));
        assertTrue(files.getFileStatus(at("a/b/c")).isDirectory());
        between.act = () -> write(files, at("x"), bytes(1), false);
        assertThrows(IOException.class, () -> names.makeDirectories(in("/x/y")));
    }
}
