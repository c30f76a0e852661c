package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("memory")
@Timeout(60)
class AbortedWriteTest {
    private final List<String> done = new CopyOnWriteArrayList<>();
    private final CountDownLatch looked = new CountDownLatch(1);

    private Runnable abort() {
        done.add("abort");
        return () -> {
            done.add("look");
            looked.countDown();
        };
    }

    @Test
    void itLooksAgainBeforeTheCallerGoesOn() {
        long begunAtNs = System.nanoTime();
        AbortedWrite.end("a write", this::abort);
        assertEquals(List.of("abort", "look"), done);
        assertTrue(System.nanoTime() - begunAtNs > AbortedWrite.STRAGGLERS_MS * 500_000, "other tasks have a moment to end");
        assertFalse(Thread.interrupted());
    }

    @Test
    void aCallerThatIsInterruptedGoesOnAtOnceAndAllOfItHappensAllTheSame() throws InterruptedException {
        CountDownLatch mayAbort = new CountDownLatch(1);
        Thread.currentThread().interrupt();
        AbortedWrite.end("a write", () -> {
            try {
                mayAbort.await();
            } catch (InterruptedException interrupted) {
                throw new IOException("the abort was interrupted");
            }
            return abort();
        });
        assertTrue(Thread.interrupted(), "the caller stays interrupted");
        assertEquals(List.of(), done);
        mayAbort.countDown();
        looked.await();
        assertEquals(List.of("abort", "look"), done);
    }

    @Test
    void anAbortThatFailsIsNoError() {
        AbortedWrite.end("a write", () -> {
            throw new IOException("no quorum");
        });
        AbortedWrite.end("a write", () -> {
            throw new IllegalStateException("no client");
        });
        assertEquals(List.of(), done);
    }
}
