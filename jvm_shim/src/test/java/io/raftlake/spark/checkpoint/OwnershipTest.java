package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Two runs and one checkpoint. */
class OwnershipTest {
    private static final String QUERY = "8d0e3b1c-query";

    private final Configuration conf = Spaces.conf();
    private final String pipeline = Spaces.newPipeline();
    private final Path root = new Path("raftlake://" + pipeline + "/a%b/q");
    private final String ownerKey = "/fs-owner/" + pipeline + "/a%25b/q";
    private final Run older = driver("older");
    private final Run newer = driver("newer");

    private static Run driver(String name) {
        return new Run(name + "-" + UUID.randomUUID(), QUERY);
    }

    private static Run tasks(Run ofDriver) {
        return new Run(ofDriver.id(), null);
    }

    private CheckpointFiles files(Run run, String path) throws IOException {
        return new CheckpointFiles(new Path(root, path), conf, absent -> Optional.ofNullable(run));
    }

    private Path at(String path) {
        return new Path(root, path);
    }

    private static void write(CheckpointFiles files, Path path) throws IOException {
        write(files, path, bytes(10));
    }

    private static void write(CheckpointFiles files, Path path, byte[] content) throws IOException {
        try (CancellableFSDataOutputStream out = files.createAtomic(path, false)) {
            out.write(content);
        }
    }

    private Optional<Owner> owner() throws IOException {
        return Spaces.SPACE.get(ownerKey).map(Entry::value).map(Owner::decode);
    }

    private void assertFenced(org.junit.jupiter.api.function.Executable call) {
        String told = assertThrows(CheckpointFencedException.class, call).getMessage();
        assertTrue(told.contains(root.toString()) && told.contains(newer.id()) && told.contains(older.id()), told);
        assertTrue(told.contains("on host ") && told.contains("process " + ProcessHandle.current().pid()), told);
    }

    /** As Spark does it in the thread of the user, who works for no run. */
    @BeforeEach
    void begin() throws IOException {
        write(files(null, "metadata"), at("metadata"), ("{\"id\":\"" + QUERY + "\"}").getBytes());
        files(null, "offsets").mkdirs(at("offsets"));
        assertTrue(owner().isEmpty());
    }

    @Test
    void theFirstCallOfARunTakesTheCheckpoint() throws IOException {
        CheckpointFiles files = files(older, "offsets");
        assertTrue(owner().isEmpty());
        files.list(at("offsets"));
        Owner owner = owner().orElseThrow();
        assertEquals(older.id(), owner.run());
        assertEquals(QUERY, owner.query());
        assertEquals(ProcessHandle.current().pid(), owner.pid());
        assertFalse(owner.host().isEmpty());
        assertTrue(System.currentTimeMillis() - owner.sinceMs() < 60_000);
        long taken = Spaces.SPACE.get(ownerKey).orElseThrow().version();
        write(files, at("offsets/0"));
        write(files(older, "commits"), at("commits/0"));
        assertEquals(taken, Spaces.SPACE.get(ownerKey).orElseThrow().version(), "a run takes it once");
    }

    @Test
    void aNewerRunFencesEveryChangeOfTheOlder() throws IOException {
        CheckpointFiles offsets = files(older, "offsets");
        write(offsets, at("offsets/0"));
        CancellableFSDataOutputStream underWay = offsets.createAtomic(at("offsets/1"), false);
        underWay.write(bytes(10));
        CheckpointFiles lateTasks = files(tasks(older), "state/0/0");
        write(lateTasks, at("state/0/0/1.delta"));

        CheckpointFiles ofNewer = files(newer, "offsets");
        assertEquals(1, ofNewer.list(at("offsets")).length);
        assertFenced(underWay::close);
        assertFenced(() -> offsets.delete(at("offsets/0")));
        assertFenced(() -> offsets.list(at("offsets")));
        assertFenced(() -> write(lateTasks, at("state/0/0/2.delta")));
        assertFenced(() -> lateTasks.delete(at("state/0/0/1.delta")));
        // Files that they open later.
        assertFenced(() -> files(older, "commits").mkdirs(at("commits")));
        assertFenced(() -> write(files(older, "commits"), at("commits/0")));
        assertFenced(() -> write(files(tasks(older), "state/0/1"), at("state/0/1/1.delta")));

        assertFalse(ofNewer.exists(at("offsets/1")));
        assertFalse(ofNewer.exists(at("commits")));
        assertFalse(ofNewer.exists(at("state/0/0/2.delta")));
        assertTrue(ofNewer.exists(at("offsets/0")) && ofNewer.exists(at("state/0/0/1.delta")));
        write(ofNewer, at("offsets/1"));
        write(files(tasks(newer), "state/0/0"), at("state/0/0/2.delta"));
        assertEquals(newer.id(), owner().orElseThrow().run());
    }

    /** Spark asks whether the file of a batch exists, and creates it if not: to a fenced run either tells of the newer one. */
    @Test
    void aFileOfTheNewerRunIsNoConcurrentUpdateButAFence() throws IOException {
        CheckpointFiles offsets = files(older, "offsets");
        write(offsets, at("offsets/0"));
        assertTrue(offsets.exists(at("offsets/0")));
        assertThrows(FileAlreadyExistsException.class, () -> write(offsets, at("offsets/0")));
        CancellableFSDataOutputStream underWay = files(older, "commits").createAtomic(at("commits/0"), false);
        CheckpointFiles asks = files(older, "offsets");
        CheckpointFiles tasks = files(tasks(older), "state/0/0");
        tasks.exists(at("offsets/0"));
        files(newer, "offsets").list(at("offsets"));
        write(files(newer, "offsets"), at("offsets/1"));
        write(files(newer, "commits"), at("commits/0"));
        write(files(tasks(newer), "state/0/0"), at("state/0/0/1.delta"));
        assertFenced(() -> write(tasks, at("state/0/0/1.delta")));
        assertFenced(underWay::close);
        assertFenced(() -> asks.exists(at("offsets/1")));
    }

    /** In an executor of its own: nothing of the run was told there that it lost the checkpoint. */
    @Test
    void theFirstWriteOfALateTaskIsFenced() throws IOException {
        files(older, "offsets").list(at("offsets"));
        files(newer, "offsets").list(at("offsets"));
        assertFenced(() -> write(files(tasks(older), "state/0/0"), at("state/0/0/1.delta")));
        assertFalse(files(newer, "state/0/0").exists(at("state/0/0/1.delta")));
    }

    /** The first call of a run after another took the checkpoint. */
    @Test
    void aFileThatTheNewerRunWroteIsNotTakenForOnesOwn() throws IOException {
        CheckpointFiles offsets = files(older, "offsets");
        offsets.exists(at("offsets"));
        write(files(newer, "offsets"), at("offsets/1"));
        assertFenced(() -> offsets.exists(at("offsets/1")));
    }

    /** Its answer is lost, and it was read back too late. */
    @Test
    void aRunWhoseTakeoverWasTakenOverAtOnceIsFenced() throws IOException {
        CheckpointRoot checkpoint = new CheckpointRoot(root, QUERY);
        KeySpace lossy = new Lossy(() -> new Ownership(Spaces.SPACE, checkpoint, newer).enter());
        assertFenced(() -> new Ownership(lossy, checkpoint, older).enter());
        assertEquals(newer.id(), owner().orElseThrow().run());
        KeySpace quiet = new Lossy(() -> {});
        Ownership again = new Ownership(quiet, checkpoint, driver("third"));
        again.enter();
        Txn txn = new Txn().put("/x-" + pipeline, bytes(1));
        again.addTo(txn);
        assertTrue(Spaces.SPACE.commit(txn, space -> false).succeeded(), "it knows the version that its key got");
    }

    /** No answer tells the version of a change, and somebody acts before it is read back. */
    private static final class Lossy implements KeySpace {
        private interface Act {
            void run() throws IOException;
        }

        private final Act act;

        Lossy(Act act) {
            this.act = act;
        }

        @Override
        public Optional<Entry> get(String key) throws IOException {
            return Spaces.SPACE.get(key);
        }

        @Override
        public Page list(ListRequest request) throws IOException {
            return Spaces.SPACE.list(request);
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            TxnResult result = Spaces.SPACE.commit(txn, witness);
            act.run();
            return result.succeeded() ? TxnResult.happened(0) : result;
        }

        @Override
        public String describe() {
            return "lossy";
        }
    }

    @Test
    void aRunThatLostACheckpointDoesNotTakeItAgainWhenTheNewerOneIsGone() throws IOException {
        CheckpointFiles offsets = files(older, "offsets");
        offsets.list(at("offsets"));
        files(newer, "offsets").list(at("offsets"));
        assertFenced(() -> write(offsets, at("offsets/0")));
        Spaces.SPACE.commit(new Txn().delete(ownerKey), space -> space.get(ownerKey).isEmpty());
        assertFenced(() -> write(offsets, at("offsets/0")));
        assertFenced(() -> files(older, "offsets").list(at("offsets")));
    }

    @Test
    void anOwnerKeyThatSomebodyDeletedFencesTheRun() throws IOException {
        CheckpointFiles offsets = files(older, "offsets");
        offsets.list(at("offsets"));
        Spaces.SPACE.commit(new Txn().delete(ownerKey), space -> space.get(ownerKey).isEmpty());
        String told = assertThrows(CheckpointFencedException.class, () -> write(offsets, at("offsets/0"))).getMessage();
        assertTrue(told.contains("its owner key was deleted"), told);
    }

    @Test
    void tasksThatFoundNoOwnerGoOnOnceTheirOwnDriverTakesTheCheckpoint() throws IOException {
        CheckpointFiles tasks = files(tasks(older), "state/0/0");
        write(tasks, at("state/0/0/1.delta"));
        files(older, "offsets").list(at("offsets"));
        write(tasks, at("state/0/0/2.delta"));
        assertTrue(tasks.exists(at("state/0/0/2.delta")));
    }

    @Test
    void readersOfOtherRunsNeitherTakeTheCheckpointNorAreFenced() throws IOException {
        files(older, "offsets").list(at("offsets"));
        CheckpointFiles ofReader = files(new Run("a-batch-job", null), "state/0/0");
        ofReader.list(at("offsets"));
        // foreachBatch of another query that looks into this checkpoint.
        CheckpointFiles ofOther = files(new Run("another", "another-query"), "offsets");
        ofOther.list(at("offsets"));
        CheckpointFiles ofUser = files(null, "offsets");
        assertTrue(ofUser.exists(at("metadata")));
        assertEquals(older.id(), owner().orElseThrow().run());
    }

    @Test
    void metadataOfAnOperatorIsNoCheckpoint() throws IOException {
        for (String content : List.of("v1\n{\"operatorInfo\":{}}", "{\"operatorInfo\":{}}")) {
            Run run = driver("older");
            Path directory = at("state/" + content.length() + "/_metadata");
            write(files(null, "."), new Path(directory, "metadata"), content.getBytes());
            new CheckpointFiles(directory, conf, absent -> Optional.of(run)).list(directory);
            assertEquals(run.id(), owner().orElseThrow().run());
        }
    }

    @Test
    void outsideOfACheckpointNobodyIsFenced() throws IOException {
        Path output = new Path("raftlake://" + pipeline + "/output");
        CheckpointFiles sink = new CheckpointFiles(output, conf, absent -> Optional.of(older));
        write(sink, new Path(output, "_spark_metadata/0"));
        assertTrue(owner().isEmpty());
    }

    @Test
    void aRunTakesACheckpointWhoseMetadataCameLater() throws IOException {
        Path late = new Path("raftlake://" + pipeline + "/late");
        CheckpointFiles offsets = new CheckpointFiles(new Path(late, "offsets"), conf, absent -> Optional.of(older));
        offsets.mkdirs(new Path(late, "offsets"));
        String key = "/fs-owner/" + pipeline + "/late";
        assertTrue(Spaces.SPACE.get(key).isEmpty());
        write(files(null, "."), new Path(late, "metadata"), ("{\"id\":\"" + QUERY + "\"}").getBytes());
        offsets.list(new Path(late, "offsets"));
        assertTrue(Spaces.SPACE.get(key).isPresent());
    }

    /** Runs come and go, each with two writers; what a run wrote is from before the next one took the checkpoint. */
    @Test
    void ofManyRunsEachWritesBeforeTheNextOneTakes() throws Exception {
        int runs = 6;
        ExecutorService threads = Executors.newFixedThreadPool(runs * 2);
        try {
            CountDownLatch done = new CountDownLatch(1);
            List<Future<Void>> writers = new ArrayList<>();
            for (int number = 0; number < runs; number++) {
                Run run = driver("run-" + number);
                CheckpointFiles offsets = files(run, "offsets");
                offsets.list(at("offsets"));
                for (Run writer : List.of(run, tasks(run))) {
                    CheckpointFiles files = files(writer, "offsets");
                    writers.add(threads.submit(() -> {
                        for (int file = 0; done.getCount() > 0; file++) {
                            write(files, at("offsets/" + (writer.isOfDriver() ? "d-" : "t-") + run.id() + "-" + file));
                        }
                        return null;
                    }));
                }
                while (files(null, ".").list(at("offsets")).length < 4 * (number + 1)) {
                    Thread.onSpinWait();
                }
            }
            done.countDown();
            int fenced = 0;
            for (Future<Void> writer : writers) {
                try {
                    writer.get();
                } catch (java.util.concurrent.ExecutionException error) {
                    assertEquals(CheckpointFencedException.class, error.getCause().getClass(), error.toString());
                    fenced++;
                }
            }
            assertEquals(2 * (runs - 1), fenced);
        } finally {
            threads.shutdownNow();
        }
        requireOneAfterTheOther();
    }

    private void requireOneAfterTheOther() throws IOException {
        String before = "";
        List<String> left = new ArrayList<>();
        List<Entry> entries = new ArrayList<>(Spaces.SPACE.list(ListRequest.deep(
                "/fs/" + pipeline + "/a%25b/q/offsets/", false)).entries());
        entries.sort(java.util.Comparator.comparingLong(Entry::version));
        for (Entry entry : entries) {
            String name = entry.key().substring(entry.key().lastIndexOf('/') + 3);
            String run = name.substring(0, name.lastIndexOf('-'));
            if (!run.equals(before)) {
                assertFalse(left.contains(run), run + " wrote after " + before + " had taken the checkpoint");
                left.add(before);
                before = run;
            }
        }
    }
}
