package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.Fence;
import io.raftlake.spark.fs.FsSettings;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.MemoryLogs;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Topics of state go with their checkpoint, and stay with one that was renamed. */
class StateCollectorTest {
    private final MemoryKeySpace space = new MemoryKeySpace();
    private final MemoryLogs logs = new MemoryLogs();
    private final RaftlakeFileSystem fileSystem = new RaftlakeFileSystem() {
        @Override
        protected KeySpace keySpace(FsSettings settings) {
            return space;
        }
    };
    private StateCollector collector;

    @BeforeEach
    void open() throws IOException {
        fileSystem.initialize(URI.create("raftlake://p/"), Spaces.conf());
        collector = new StateCollector(fileSystem.files(), logs);
    }

    private void writeMetadata(Path root, String query) throws IOException {
        try (FSDataOutputStream out = fileSystem.create(new Path(root, "metadata"), true)) {
            out.write(("{\"id\":\"" + query + "\"}").getBytes(StandardCharsets.UTF_8));
        }
    }

    private StateTopics topics(Path root, String query) {
        return new StateTopics(space, logs, new Checkpoint(root, query, Fence.NONE));
    }

    private static StateStoreId store(Path root) {
        return new StateStoreId(root + "/state", 0, 0, "default");
    }

    private Path checkpoint(String name, String query) throws IOException {
        Path root = new Path("raftlake://p/" + name);
        writeMetadata(root, query);
        topics(root, query).ensure(store(root), 1);
        return root;
    }

    private int count() {
        return logs.topics(StateTopics.PREFIX).size();
    }

    @Test
    void theTopicsOfADeletedCheckpointGoInTheSecondRound() throws IOException {
        Path gone = checkpoint("a/gone", "q1");
        Path stays = checkpoint("a/st%ys ü", "q2");
        assertEquals(0, collector.collect(1));
        fileSystem.delete(gone, true);
        assertEquals(0, collector.collect(2));
        assertEquals(2, count());
        assertEquals(1, collector.collect(3));
        assertEquals(1, count());
        assertTrue(topics(stays, "q2").find(store(stays)).isPresent());
        assertEquals(0, collector.collect(4));
    }

    @Test
    void aCheckpointThatWasMadeAnewLosesTheOldTopics() throws IOException {
        Path root = checkpoint("main", "q1");
        writeMetadata(root, "q2");
        topics(root, "q2").ensure(store(root), 1);
        assertEquals(2, count());
        assertEquals(1, collector.collect(1));
        assertTrue(topics(root, "q2").find(store(root)).isPresent());
    }

    @Test
    void aRenamedCheckpointKeepsItsState() throws IOException {
        Path first = checkpoint("a/main", "q1");
        Path moved = new Path("raftlake://p/a/other");
        assertTrue(fileSystem.rename(first, moved));
        assertTrue(topics(moved, "q1").find(store(moved)).isPresent());
        assertTrue(fileSystem.rename(new Path("raftlake://p/a"), new Path("raftlake://p/b")));
        Path last = new Path("raftlake://p/b/other");
        assertTrue(topics(last, "q1").find(store(last)).isPresent());
        assertFalse(space.get("/fs-state/p/a/other").isPresent());
        assertEquals(0, collector.collect(1));
        assertEquals(0, collector.collect(2));
        assertEquals(1, count());
    }

    @Test
    void nothingGoesWhereAKeyWasPutSinceTheList() throws IOException {
        logs.ensureTopic(StateTopics.PREFIX + "0123456789abcdef0123456789abcdef-0-default", 1, Map.of());
        KeySpace busy = new Busy(space);
        RaftlakeFileSystem over = new RaftlakeFileSystem() {
            @Override
            protected KeySpace keySpace(FsSettings settings) {
                return busy;
            }
        };
        over.initialize(URI.create("raftlake://p/"), Spaces.conf());
        QuorumFiles files = over.files();
        assertEquals(0, new StateCollector(files, logs).collect(1));
        assertEquals(1, count());
        assertEquals(1, collector.collect(2));
    }

    /** Another client puts a key of state behind each list. */
    private record Busy(MemoryKeySpace space) implements KeySpace {
        @Override
        public Optional<Entry> get(String key) {
            return space.get(key);
        }

        @Override
        public Page list(ListRequest request) {
            Page page = space.list(request);
            try {
                space.commit(new Txn().put("/fs-state/p/new", new byte[] {'{', '}'}), at -> true);
            } catch (IOException impossible) {
                throw new IllegalStateException(impossible);
            }
            return page;
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            return space.commit(txn, witness);
        }

        @Override
        public String describe() {
            return "busy";
        }
    }

    @Test
    void itIsDueOnceAnHourAndNotAtOnce() {
        String name = Spaces.newPipeline();
        long now = 1_000_000;
        assertFalse(StateCollector.isDue(name, now));
        assertFalse(StateCollector.isDue(name, now + StateCollector.PAUSE_MS - 1));
        assertTrue(StateCollector.isDue(name, now + StateCollector.PAUSE_MS));
        assertFalse(StateCollector.isDue(name, now + StateCollector.PAUSE_MS + 1));
        assertTrue(StateCollector.isDue(name, now + 2 * StateCollector.PAUSE_MS));
    }
}
