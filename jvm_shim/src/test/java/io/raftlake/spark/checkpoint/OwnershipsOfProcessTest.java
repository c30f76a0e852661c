package io.raftlake.spark.checkpoint;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import java.io.IOException;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a process remembers of runs that come and go. */
@Tag("memory")
@Timeout(60)
class OwnershipsOfProcessTest {
    private static final String QUERY = "8d0e3b1c-query";

    private final OwnershipsOfProcess all = new OwnershipsOfProcess();

    private static Ownership fresh(String checkpoint, Run run) throws IOException {
        return new Ownership(new MemoryKeySpace(), new CheckpointRoot(new Path("raftlake://p/" + checkpoint), QUERY), run);
    }

    private Ownership known(String quorum, String checkpoint, Run run) throws IOException {
        return all.known(quorum, run, fresh(checkpoint, run));
    }

    private static Run driver(int number) {
        return new Run("run-" + number, QUERY);
    }

    @Test
    void aRunHasOneForEachCheckpointOfEachQuorum() throws IOException {
        for (Run run : List.of(driver(0), new Run("run-0", null))) {
            Ownership first = known("a", "q", run);
            assertSame(first, known("a", "q", run));
            Ownership ofOther = known("a", "other", run);
            Ownership elsewhere = known("b", "q", run);
            assertNotSame(first, ofOther);
            assertNotSame(first, elsewhere);
            assertNotSame(first, known("a", "q", run.isOfDriver() ? new Run("run-0", null) : driver(0)));
            Reference.reachabilityFence(List.of(first, ofOther, elsewhere));
        }
    }

    @Test
    void theLastRunsOfADriverAreRemembered() throws IOException {
        Ownership first = known("a", "q", driver(0));
        Ownership other = known("a", "other", driver(0));
        for (int number = 1; number < OwnershipsOfProcess.RUNS_KEPT; number++) {
            known("a", "q", driver(number));
        }
        assertSame(first, known("a", "q", driver(0)), "a thread that is left of it is fenced");
        known("a", "q", driver(OwnershipsOfProcess.RUNS_KEPT));
        assertEquals(OwnershipsOfProcess.RUNS_KEPT + 1, all.size());
        assertSame(other, known("a", "other", driver(0)), "runs of another checkpoint count for that one");
        assertNotSame(first, known("a", "q", driver(0)));
    }

    @Test
    void nothingIsLeftOfTasksThatAreOver() throws IOException {
        Run kept = new Run("kept", null);
        Ownership used = known("a", "q", kept);
        List<Ownership> many = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            many.add(known("a", "q", new Run("read-" + number, null)));
        }
        assertEquals(101, all.size());
        many.clear();
        for (int look = 0; all.size() > 2 && look < 100; look++) {
            System.gc();
            known("a", "q", new Run("look", null));
        }
        assertTrue(all.size() <= 2, all.size() + " are kept");
        assertSame(used, known("a", "q", kept));
    }
}
