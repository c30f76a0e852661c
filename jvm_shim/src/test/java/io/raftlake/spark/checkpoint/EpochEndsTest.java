package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a sink has decided with the file that ends a batch, and what becomes of both where one of them cannot be. */
class EpochEndsTest extends CheckpointCase {
    private final Run run = driver("run");
    private final KeySpace space = Spaces.SPACE;
    private CheckpointFiles offsets;
    private CheckpointFiles commits;

    /** A sink that wants a key of its own to be put once. */
    private final class Sink implements EpochEnds.Outcome {
        private final String key = "/sinks/" + pipeline + "/" + UUID.randomUUID();
        private final List<String> told = new ArrayList<>();

        @Override
        public void addTo(Txn txn) {
            txn.compare(key, KeySpace.ABSENT).put(key, bytes(3));
        }

        @Override
        public void explain(TxnResult refused) throws IOException {
            if (refused.inTheWay().contains(key)) {
                throw new IOException("somebody else was faster");
            }
        }

        @Override
        public void decided() {
            told.add("decided");
        }

        @Override
        public void failed() {
            told.add("failed");
        }

        private boolean isPut() throws IOException {
            return space.get(key).isPresent();
        }
    }

    private static void write(CheckpointFiles files, Path path) throws IOException {
        CancellableFSDataOutputStream out = files.createAtomic(path, false);
        out.write(bytes(10));
        out.close();
    }

    private EpochEnds ends() {
        return EpochEnds.of(QUERY, run.id()).orElseThrow();
    }

    @BeforeEach
    void begin() throws IOException {
        create("offsets", "commits");
        assertTrue(EpochEnds.of(QUERY, run.id()).isEmpty(), "nobody has taken the checkpoint yet");
        offsets = started(run, "offsets");
        commits = started(run, "commits");
    }

    @Test
    void theFileThatEndsABatchDecidesTheSink() throws IOException {
        Sink sink = new Sink();
        ends().decideWith(0, sink);
        write(offsets, at("offsets/0"));
        assertFalse(sink.isPut(), "the offsets alone decide nothing");
        write(commits, at("commits/0"));
        assertEquals(List.of("decided"), sink.told);
        long version = space.get(sink.key).map(Entry::version).orElseThrow();
        assertEquals(version, space.get("/fs/" + pipeline + "/q/commits/0").map(Entry::version).orElseThrow(), "one transaction");
    }

    @Test
    void eachBatchIsDecidedOnce() throws IOException {
        for (int batch = 0; batch < 3; batch++) {
            Sink sink = new Sink();
            ends().decideWith(batch, sink);
            write(offsets, at("offsets/" + batch));
            write(commits, at("commits/" + batch));
            assertTrue(sink.isPut());
            assertEquals(List.of("decided"), sink.told);
        }
        write(commits, at("commits/3"));
        assertEquals(4, commits.list(at("commits"), path -> true).length, "a batch of which no sink has told");
    }

    @Test
    void whatCannotBeDecidedEndsNoBatch() throws IOException {
        Sink sink = new Sink();
        space.commit(new Txn().put(sink.key, bytes(4)), any -> false);
        ends().decideWith(0, sink);
        IOException error = assertThrows(IOException.class, () -> write(commits, at("commits/0")));
        assertEquals("somebody else was faster", error.getMessage());
        assertEquals(List.of("failed"), sink.told);
        assertFalse(files(run, "commits").exists(at("commits/0")));
    }

    @Test
    void aBatchThatHasEndedDecidesNothing() throws IOException {
        write(commits, at("commits/0"));
        Sink sink = new Sink();
        ends().decideWith(0, sink);
        assertThrows(FileAlreadyExistsException.class, () -> write(commits, at("commits/0")));
        assertFalse(sink.isPut());
        assertEquals(List.of("failed"), sink.told);
    }

    @Test
    void aRunThatWasReplacedDecidesNothing() throws IOException {
        Sink sink = new Sink();
        ends().decideWith(0, sink);
        CancellableFSDataOutputStream out = commits.createAtomic(at("commits/0"), false);
        out.write(bytes(10));
        CheckpointFiles ofNewer = started(driver("newer"), "commits");
        assertThrows(CheckpointFencedException.class, out::close);
        assertFalse(sink.isPut());
        assertFalse(ofNewer.exists(at("commits/0")));
        assertEquals(List.of("failed"), sink.told);
    }

    @Test
    void aFileThatIsGivenUpDecidesNothing() throws IOException {
        Sink sink = new Sink();
        ends().decideWith(0, sink);
        CancellableFSDataOutputStream out = commits.createAtomic(at("commits/0"), false);
        out.write(bytes(10));
        out.cancel();
        out.close();
        assertFalse(sink.isPut());
        assertEquals(List.of("failed"), sink.told);
    }

    @Test
    void noOtherBatchEndsBeforeTheOneThatWasTold() throws IOException {
        ends().decideWith(0, new Sink());
        String told = "batch 1 would end, and what the sink has written of batch 0 was never decided";
        assertEquals(told, assertThrows(IllegalStateException.class, () -> write(commits, at("commits/1"))).getMessage());
        assertEquals(told, assertThrows(IllegalStateException.class, () -> ends().decideWith(1, new Sink())).getMessage());
        assertFalse(commits.exists(at("commits/1")));
    }

    @Test
    void aChangeOfTheDirectoryMeanwhileIsLookedAtAgain() throws IOException {
        Sink sink = new Sink();
        ends().decideWith(0, sink);
        CancellableFSDataOutputStream out = commits.createAtomic(at("commits/0"), false);
        out.write(bytes(10));
        String directory = "/fs/" + pipeline + "/q/commits";
        byte[] same = space.get(directory).orElseThrow().value();
        space.commit(new Txn().put(directory, same), any -> false);
        out.close();
        assertTrue(sink.isPut());
        assertEquals(List.of("decided"), sink.told);
    }

    /** Has {@code found} filled with whether the batch's file was there, each time that the rest is waited for. */
    private void endWith(int batch, List<String> found) {
        ends().endWith(batch, () -> found.add(batch + " " + commits.exists(at("commits/" + batch))));
    }

    @Test
    void whatIsLeftOfABatchIsWaitedForOnceItsFileIsThere() throws IOException {
        List<String> found = new ArrayList<>();
        for (int batch = 0; batch < 3; batch++) {
            endWith(batch, found);
            write(offsets, at("offsets/" + batch));
            assertEquals(batch, found.size(), "the file of another log");
            CancellableFSDataOutputStream out = commits.createAtomic(at("commits/" + batch), false);
            out.write(bytes(10));
            assertEquals(batch, found.size());
            out.close();
            out.close();
            out.cancel();
        }
        assertEquals(List.of("0 true", "1 true", "2 true"), found);
        write(commits, at("commits/3"));
        assertEquals(3, found.size(), "a batch of which no sink has told");
    }

    @Test
    void aBatchWaitsForWhatIsLeftOfItAlone() throws IOException {
        List<String> found = new ArrayList<>();
        endWith(1, found);
        write(commits, at("commits/0"));
        write(commits, at("commits/10"));
        assertEquals(List.of(), found);
        // The sink goes on, and never heard of an end of batch 1.
        endWith(2, found);
        write(commits, at("commits/1"));
        assertEquals(List.of(), found);
        write(commits, at("commits/2"));
        assertEquals(List.of("2 true"), found);
    }

    @Test
    void nothingIsWaitedForWhereABatchDoesNotEnd() throws IOException {
        List<String> found = new ArrayList<>();
        endWith(0, found);
        CancellableFSDataOutputStream out = commits.createAtomic(at("commits/0"), false);
        out.write(bytes(10));
        out.cancel();
        out.close();
        write(commits, at("commits/0"));
        endWith(0, found);
        assertThrows(FileAlreadyExistsException.class, () -> write(commits, at("commits/0")));
        assertEquals(List.of(), found);
    }

    @Test
    void theQuorumOfTheCheckpointIsTheOneWithItsOwner() throws IOException {
        assertTrue(ends().areIn(space));
        assertFalse(ends().areIn(new MemoryKeySpace()));
        assertTrue(EpochEnds.of("another query", run.id()).isEmpty());
        started(driver("newer"), "offsets");
        assertThrows(CheckpointFencedException.class, () -> ends().areIn(space), "it does not change to another guarantee");
    }
}
