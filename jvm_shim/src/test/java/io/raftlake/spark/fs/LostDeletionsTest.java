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
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.net.URI;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Changes of files with blobs, whose answers are lost while another process renames the files. */
@Tag("memory")
class LostDeletionsTest {
    private static final byte[] LARGE = bytes(100_000);

    private final MemoryKeySpace space = new MemoryKeySpace();
    private final Configuration conf = new Configuration(false);
    private final Losing losing = new Losing(space);

    @TempDir
    java.nio.file.Path directory;

    private ScriptedNode node;
    private FileSystem others;
    private Namespace names;

    /** As a client whose request is lost, or its answer: it looks at the witness, and sends the transaction again. */
    private static final class Losing implements KeySpace {
        private interface Act {
            void run() throws IOException;
        }

        private final KeySpace space;
        private boolean isApplied;
        private Act meanwhile;

        private Losing(KeySpace space) {
            this.space = space;
        }

        @Override
        public Optional<Entry> get(String key) throws IOException {
            return space.get(key);
        }

        @Override
        public Page list(ListRequest request) throws IOException {
            return space.list(request);
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            if (meanwhile == null) {
                return space.commit(txn, witness);
            }
            Act now = meanwhile;
            meanwhile = null;
            if (isApplied) {
                space.commit(txn, witness);
            }
            now.run();
            return witness.holds(space) ? TxnResult.happened(0) : space.commit(txn, witness);
        }

        @Override
        public String describe() {
            return "losing";
        }
    }

    @BeforeEach
    void open() throws IOException {
        node = new ScriptedNode(space);
        node.addTo(conf);
        conf.set("raftlake.fs.base.uri", directory.toUri().toString());
        others = FileSystem.newInstance(URI.create("raftlake://p/"), conf);
        names = new Namespace(losing, new Blobs(losing, new HadoopBlobStore(directory.toUri().toString(), conf), null), Fence.NONE);
    }

    @AfterEach
    void close() throws IOException {
        others.close();
        node.close();
    }

    private static Path at(String path) {
        return new Path("raftlake://p/" + path);
    }

    private static Location in(String path) throws IOException {
        return Location.of("p", path);
    }

    private long blobs() throws IOException {
        try (var left = java.nio.file.Files.list(directory.resolve("p"))) {
            return left.filter(file -> !file.getFileName().toString().endsWith(".crc")).count();
        }
    }

    @Test
    void theBlobOfAFileThatWasRenamedMeanwhileStays() throws IOException {
        write(others, at("f"), LARGE, false);
        losing.meanwhile = () -> assertTrue(others.rename(at("f"), at("g")));
        assertFalse(new Deletions(names).delete(in("/f"), false));
        assertArrayEquals(LARGE, read(others, at("g")));
    }

    @Test
    void theBlobsOfADirectoryThatWasRenamedMeanwhileStay() throws IOException {
        write(others, at("d/f"), LARGE, false);
        write(others, at("d/small"), bytes(1), false);
        losing.meanwhile = () -> assertTrue(others.rename(at("d"), at("kept")));
        assertFalse(new Deletions(names).delete(in("/d"), true));
        assertArrayEquals(LARGE, read(others, at("kept/f")));
    }

    @Test
    void theBlobOfATargetThatWasRenamedMeanwhileStays() throws IOException {
        write(others, at("f"), bytes(90_000), false);
        write(others, at("g"), LARGE, false);
        losing.meanwhile = () -> {
            assertTrue(others.rename(at("g"), at("kept")));
            assertTrue(others.rename(at("f"), at("g")));
        };
        try {
            new Moves(names).move(in("/f"), in("/g"), true);
        } catch (IOException gone) {
            // The source: another process has renamed it.
        }
        assertArrayEquals(LARGE, read(others, at("kept")));
        assertArrayEquals(bytes(90_000), read(others, at("g")));
    }

    @Test
    void aDeletionThatHappenedIsNotDoneAgain() throws IOException {
        write(others, at("d/f"), LARGE, false);
        losing.isApplied = true;
        losing.meanwhile = () -> {};
        assertTrue(new Deletions(names).delete(in("/d/f"), false));
        assertEquals(0, blobs());
        assertEquals(0, space.keys("/fs-blobs/").size());
        write(others, at("d/f"), LARGE, false);
        losing.meanwhile = () -> write(others, at("d/f"), bytes(90_000), false);
        assertTrue(new Deletions(names).delete(in("/d"), true));
        assertArrayEquals(bytes(90_000), read(others, at("d/f")), "a file that was written since");
        assertEquals(1, blobs());
    }

    private FileWriter writer(String path) throws IOException {
        Namespace.Plan plan = names.plan(in(path), false, true);
        return new FileWriter(names, in(path), plan, false, true, 4_096, new FileSystem.Statistics("raftlake"));
    }

    /** The put of a file happened, its answer is lost, and another process renames the file before the put is looked for. */
    @Test
    void theBlobOfAFileThatWasPutAndRenamedMeanwhileStays() throws IOException {
        others.mkdirs(at("d"));
        FileWriter writer = writer("/d/f");
        writer.write(LARGE, 0, LARGE.length);
        losing.isApplied = true;
        losing.meanwhile = () -> assertTrue(others.rename(at("d"), at("kept")));
        String told = assertThrows(PathIOException.class, writer::close).getMessage();
        assertTrue(told.contains("the answer was lost, and another process has moved"), told);
        assertArrayEquals(LARGE, read(others, at("kept/f")));
    }

    /** The first try never arrived: nothing points to the blob. */
    @Test
    void theBlobOfAFileThatWasNotPutGoes() throws IOException {
        FileWriter writer = writer("/d/f");
        writer.write(LARGE, 0, LARGE.length);
        losing.meanwhile = () -> write(others, at("d/f"), bytes(1), false);
        assertThrows(FileAlreadyExistsException.class, writer::close);
        assertEquals(0, blobs());
        assertEquals(0, space.keys("/fs-blobs/").size());
    }

    /** The answer to the claim of its intent is lost too. */
    @Test
    void theBlobOfAFileThatWasNotPutGoesWhereAnswersAreLost() throws IOException {
        for (boolean isApplied : new boolean[] {true, false}) {
            String path = "d/f-" + isApplied;
            FileWriter writer = writer("/" + path);
            writer.write(LARGE, 0, LARGE.length);
            losing.isApplied = false;
            losing.meanwhile = () -> {
                write(others, at(path), bytes(1), false);
                losing.isApplied = isApplied;
                losing.meanwhile = () -> {};
            };
            assertThrows(FileAlreadyExistsException.class, writer::close);
            assertEquals(0, blobs());
            assertEquals(0, space.keys("/fs-blobs/").size());
        }
    }
}
