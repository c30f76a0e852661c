package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.Spaces;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Optional;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Which questions of a batch reach the quorum, and what becomes of an answer that was given without it and is wrong. */
class KnownBatchesTest {
    private static final String QUERY = "8d0e3b1c-query";

    private final Configuration conf = Spaces.conf();
    private final Path root = new Path("raftlake://" + Spaces.newPipeline() + "/q");
    private final Run run = new Run("run-" + UUID.randomUUID(), QUERY);
    private final Run newer = new Run("newer-" + UUID.randomUUID(), QUERY);

    private CheckpointFiles files(Run of, String path) throws IOException {
        return new CheckpointFiles(at(path), conf, absent -> Optional.ofNullable(of));
    }

    private Path at(String path) {
        return new Path(root, path);
    }

    private static void write(CheckpointFiles files, Path path) throws IOException {
        try (CancellableFSDataOutputStream out = files.createAtomic(path, false)) {
            out.write(bytes(10));
        }
    }

    private static byte[] read(CheckpointFiles files, Path path) throws IOException {
        try (InputStream in = files.open(path)) {
            return in.readAllBytes();
        }
    }

    /** As Spark begins a query: its metadata and its logs on the user's thread, then lists on the thread of the run. */
    @BeforeEach
    void begin() throws IOException {
        try (CancellableFSDataOutputStream out = files(null, ".").createAtomic(at("metadata"), false)) {
            out.write(("{\"id\":\"" + QUERY + "\"}").getBytes());
        }
        for (String log : new String[] {"offsets", "commits", "sources/0", "state"}) {
            files(null, log).mkdirs(at(log));
        }
    }

    private CheckpointFiles started(Run of, String log) throws IOException {
        CheckpointFiles files = files(of, log);
        files.list(at(log));
        return files;
    }

    private long reads() {
        return ((MemoryKeySpace) Spaces.SPACE).reads(root.toUri().getAuthority());
    }

    @Test
    void aBatchAsksTheQuorumNothing() throws IOException {
        assumeTrue(Spaces.SPACE instanceof MemoryKeySpace);
        CheckpointFiles offsets = started(run, "offsets");
        CheckpointFiles commits = started(run, "commits");
        write(offsets, at("offsets/0"));
        write(commits, at("commits/0"));
        long before = reads();
        for (int batch = 1; batch < 5; batch++) {
            for (CheckpointFiles log : new CheckpointFiles[] {offsets, commits}) {
                Path file = at((log == offsets ? "offsets/" : "commits/") + batch);
                assertFalse(log.exists(file));
                write(log, file);
            }
        }
        assertEquals(before, reads());
    }

    /** As the source of files does it: the batch is looked for, written, and read back; each tenth one reads those before it. */
    @Test
    void theLogOfASourceAsksTheQuorumNothing() throws IOException {
        assumeTrue(Spaces.SPACE instanceof MemoryKeySpace);
        CheckpointFiles source = started(run, "sources/0");
        write(source, at("sources/0/0"));
        long before = reads();
        for (int batch = 1; batch < 12; batch++) {
            String name = batch % 10 == 9 ? batch + ".compact" : "" + batch;
            assertFalse(source.exists(at("sources/0/" + name)));
            write(source, at("sources/0/" + name));
            assertTrue(source.exists(at("sources/0/" + name)));
            assertArrayEquals(bytes(10), read(source, at("sources/0/" + name)));
        }
        assertArrayEquals(bytes(10), read(source, at("sources/0/3")));
        assertEquals(before, reads());
    }

    /** Without a look and a transaction of its own. */
    @Test
    void anOldBatchIsDeletedWithTheNextOne() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        for (int batch = 0; batch < 3; batch++) {
            write(offsets, at("offsets/" + batch));
        }
        CheckpointFiles ofUser = files(null, "offsets");
        offsets.delete(at("offsets/0"));
        assertTrue(ofUser.exists(at("offsets/0")));
        write(offsets, at("offsets/3"));
        assertFalse(ofUser.exists(at("offsets/0")));
        offsets.delete(at("offsets/1"));
        assertFalse(offsets.exists(at("offsets/1")));
        assertFalse(ofUser.exists(at("offsets/1")));
        // Spark may write the newest one again.
        offsets.delete(at("offsets/3"));
        assertFalse(ofUser.exists(at("offsets/3")));
        assertTrue(ofUser.exists(at("offsets/2")));
    }

    @Test
    void aRunThatLostTheCheckpointDeletesNothing() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        write(offsets, at("offsets/0"));
        write(offsets, at("offsets/1"));
        offsets.delete(at("offsets/0"));
        CheckpointFiles ofNewer = started(newer, "offsets");
        assertThrows(CheckpointFencedException.class, () -> write(offsets, at("offsets/2")));
        assertTrue(ofNewer.exists(at("offsets/0")));
    }

    @Test
    void aBatchThatTheSourceDeletedIsGone() throws IOException {
        CheckpointFiles source = started(run, "sources/0");
        write(source, at("sources/0/0"));
        write(source, at("sources/0/1"));
        source.delete(at("sources/0/1"));
        assertFalse(source.exists(at("sources/0/1")));
        assertThrows(FileNotFoundException.class, () -> source.open(at("sources/0/1")));
        source.delete(at("sources/0"));
        assertFalse(source.exists(at("sources/0/0")));
    }

    @Test
    void aBatchThatWasNotWrittenIsNotRead() throws IOException {
        CheckpointFiles source = started(run, "sources/0");
        CancellableFSDataOutputStream cancelled = source.createAtomic(at("sources/0/0"), false);
        cancelled.write(bytes(10));
        cancelled.cancel();
        cancelled.close();
        assertFalse(source.exists(at("sources/0/0")));
        write(files(null, "sources/0"), at("sources/0/0"));
        CancellableFSDataOutputStream late = source.createAtomic(at("sources/0/0"), false);
        late.write(bytes(20));
        assertThrows(FileAlreadyExistsException.class, late::close);
        assertArrayEquals(bytes(10), read(source, at("sources/0/0")));
    }

    /** What another run has written there since is not known here, so it must not be concluded from what this one wrote. */
    @Test
    void aRunThatLostTheCheckpointReadsNothing() throws IOException {
        CheckpointFiles source = started(run, "sources/0");
        write(source, at("sources/0/0"));
        started(newer, "sources/0");
        assertThrows(CheckpointFencedException.class, () -> write(source, at("sources/0/1")));
        assertThrows(CheckpointFencedException.class, () -> source.open(at("sources/0/0")));
    }

    @Test
    void filesOfUsersAreNotKept() throws IOException {
        CheckpointFiles ofUser = files(null, "sources/0");
        write(ofUser, at("sources/0/0"));
        files(null, "sources/0").delete(at("sources/0/0"));
        assertFalse(ofUser.exists(at("sources/0/0")));
    }

    @Test
    void whatTheRunWroteExistsForAllItsFiles() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        CheckpointFiles again = files(run, "offsets");
        assertFalse(again.exists(at("offsets/0")));
        write(offsets, at("offsets/0"));
        assertTrue(offsets.exists(at("offsets/0")));
        assertTrue(again.exists(at("offsets/0")));
        write(again, at("offsets/1"));
        assertTrue(offsets.exists(at("offsets/1")));
        assertFalse(offsets.exists(at("offsets/2")));
    }

    @Test
    void batchesOfAnEarlierRunExist() throws IOException {
        write(started(run, "offsets"), at("offsets/0"));
        CheckpointFiles offsets = started(newer, "offsets");
        assertTrue(offsets.exists(at("offsets/0")));
        assertFalse(offsets.exists(at("offsets/1")));
    }

    /** A user put it there: the driver says that there is none, and does not replace it. */
    @Test
    void aBatchThatCameByHandIsNotReplaced() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        write(files(null, "offsets"), at("offsets/0"));
        assertFalse(offsets.exists(at("offsets/0")));
        assertThrows(FileAlreadyExistsException.class, () -> write(offsets, at("offsets/0")));
        assertTrue(offsets.exists(at("offsets/0")));
    }

    @Test
    void aBatchThatWentByHandDoesNotExist() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        write(offsets, at("offsets/0"));
        write(offsets, at("offsets/1"));
        files(null, "offsets").delete(at("offsets/1"));
        assertFalse(offsets.exists(at("offsets/1")));
        write(offsets, at("offsets/1"));
        assertTrue(offsets.exists(at("offsets/1")));
    }

    @Test
    void aBatchOfTheNewerRunIsNotThereForTheOlderAndFencesItsWrite() throws IOException {
        CheckpointFiles offsets = started(run, "offsets");
        write(started(newer, "offsets"), at("offsets/0"));
        assertFalse(offsets.exists(at("offsets/0")));
        assertThrows(CheckpointFencedException.class, () -> write(offsets, at("offsets/0")));
        assertThrows(CheckpointFencedException.class, () -> offsets.exists(at("offsets/0")));
    }

    /** Tasks make directories with numbers as names. */
    @Test
    void whereTasksWriteTheDriverAsks() throws IOException {
        CheckpointFiles state = started(run, "state");
        write(files(new Run(run.id(), null), "state/0/0"), at("state/0/0/1.delta"));
        assertTrue(state.exists(at("state/0")));
        CheckpointFiles operator = started(run, "state/0");
        write(files(new Run(run.id(), null), "state/0/1"), at("state/0/1/1.delta"));
        assertTrue(operator.exists(at("state/0/1")));
        // And a directory that is called like a log is none.
        CheckpointFiles deeper = files(run, "state/0/offsets");
        deeper.mkdirs(at("state/0/offsets"));
        deeper.list(at("state/0/offsets"));
        write(files(null, "state/0/offsets"), at("state/0/offsets/0"));
        assertTrue(deeper.exists(at("state/0/offsets/0")));
    }

    @Test
    void tasksAsk() throws IOException {
        started(run, "offsets");
        CheckpointFiles ofTasks = files(new Run(run.id(), null), "offsets");
        ofTasks.list(at("offsets"));
        write(files(null, "offsets"), at("offsets/0"));
        assertTrue(ofTasks.exists(at("offsets/0")));
    }
}
