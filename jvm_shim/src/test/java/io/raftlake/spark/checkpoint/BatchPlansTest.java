package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** When the plan of a batch is committed: beside Spark's work where a sink waits for it, and before its file is closed elsewhere. */
class BatchPlansTest extends CheckpointCase {
    private final Run run = driver("run");
    private CheckpointFiles offsets;
    private CheckpointFiles commits;
    private Ownership owner;

    private CancellableFSDataOutputStream written(String path) throws IOException {
        CancellableFSDataOutputStream out = (path.startsWith("offsets") ? offsets : commits).createAtomic(at(path), false);
        out.write(bytes(10));
        return out;
    }

    private void write(String path) throws IOException {
        written(path).close();
    }

    private BatchPlans plans() {
        return EpochEnds.of(QUERY, run.id()).orElseThrow().plans();
    }

    private boolean isThere(String path) throws IOException {
        return Spaces.SPACE.get("/fs/" + pipeline + "/q/" + path).isPresent();
    }

    @BeforeEach
    void begin() throws IOException {
        create("offsets", "commits", "sources/0");
        offsets = started(run, "offsets");
        commits = started(run, "commits");
        owner = Ownership.of(Spaces.SPACE, new CheckpointRoot(root, QUERY), run);
    }

    @Test
    void aPlanIsCommittedBesideWhatSparkDoes() throws IOException {
        for (int batch = 0; batch < 3; batch++) {
            plans().awaitInFrontOfTasks();
            String plan = "offsets/" + batch;
            // No other thread commits for the run meanwhile.
            synchronized (owner) {
                write(plan);
                assertFalse(isThere(plan));
            }
            plans().awaitInFrontOfTasks();
            assertTrue(isThere(plan));
            write("commits/" + batch);
        }
        assertEquals(3, offsets.list(at("offsets"), path -> true).length);
    }

    @Test
    void aPlanIsThereOnceItsFileIsClosedWhereNobodyWaitsForIt() throws IOException {
        synchronized (owner) {
            write("offsets/0");
            assertTrue(isThere("offsets/0"));
        }
    }

    @Test
    void otherFilesAreThereOnceTheyAreClosed() throws IOException {
        plans().awaitInFrontOfTasks();
        synchronized (owner) {
            for (String path : List.of("commits/0", "offsets/0.compact", "sources/0/0", "sources/1")) {
                write(path);
                assertTrue(isThere(path), path);
            }
        }
    }

    @Test
    void whatFollowsComesBehindThePlan() throws IOException {
        for (int batch = 0; batch < 20; batch++) {
            plans().awaitInFrontOfTasks();
            String plan = "offsets/" + batch;
            write(plan);
            commits.exists(at("commits/7"));
            assertTrue(isThere(plan));
        }
    }

    @Test
    void nothingFollowsAPlanThatFailed() throws IOException {
        write("offsets/0");
        plans().begin("offsets/1", () -> {
            throw new IOException("no majority");
        });
        List<Executable> calls = List.of(
                () -> plans().awaitInFrontOfTasks(),
                () -> write("commits/1"),
                () -> write("offsets/2"),
                () -> offsets.list(at("offsets"), path -> true),
                () -> offsets.exists(at("offsets/0")),
                () -> offsets.open(at("offsets/0")),
                () -> offsets.mkdirs(at("offsets/more")),
                () -> offsets.delete(at("offsets/0")));
        for (Executable call : calls) {
            assertEquals("no majority", assertThrows(IOException.class, call).getMessage());
        }
        assertTrue(isThere("offsets/0"));
        assertFalse(isThere("commits/1"));
    }

    @Test
    void aRunThatWasReplacedMeanwhilePlansNothing() throws IOException {
        plans().awaitInFrontOfTasks();
        CheckpointFiles ofNewer;
        synchronized (owner) {
            write("offsets/0");
            ofNewer = started(driver("newer"), "offsets");
        }
        assertThrows(CheckpointFencedException.class, () -> plans().awaitInFrontOfTasks());
        assertThrows(CheckpointFencedException.class, () -> write("commits/0"));
        assertFalse(ofNewer.exists(at("offsets/0")));
    }

    @Test
    @Timeout(value = 20, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void aPlanIsCommittedOnce() throws IOException {
        plans().awaitInFrontOfTasks();
        CancellableFSDataOutputStream out = written("offsets/0");
        // Not before the lock is free.
        synchronized (owner) {
            out.close();
            out.close();
            out.cancel();
        }
        plans().awaitInFrontOfTasks();
        assertTrue(isThere("offsets/0"));
    }

    @Test
    void aPlanThatIsGivenUpIsNotCommitted() throws IOException {
        plans().awaitInFrontOfTasks();
        CancellableFSDataOutputStream out = written("offsets/0");
        out.cancel();
        out.close();
        plans().awaitInFrontOfTasks();
        assertFalse(isThere("offsets/0"));
    }

    @Test
    void whoeverIsInterruptedEndsTheRunsPlan() {
        CountDownLatch never = new CountDownLatch(1);
        plans().begin("offsets/0", () -> {
            try {
                never.await();
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
            return null;
        });
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, () -> plans().awaitInFrontOfTasks());
        assertTrue(Thread.interrupted());
        assertThrows(InterruptedIOException.class, () -> write("commits/0"));
    }
}
