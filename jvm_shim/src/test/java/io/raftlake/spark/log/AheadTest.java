package io.raftlake.spark.log;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What becomes of work whose caller is interrupted, or which fails. */
@Timeout(30)
final class AheadTest {
    @Test
    void whoeverAwaitsTheEndLeavesTheWorkToItWhenInterrupted() throws IOException {
        CountDownLatch mayEnd = new CountDownLatch(1);
        Ahead<String> work = Ahead.of("work", () -> {
            try {
                mayEnd.await();
            } catch (InterruptedException interrupted) {
                throw new IOException("the work was interrupted");
            }
            return "done";
        });
        Thread.currentThread().interrupt();
        work.awaitEnd();
        assertTrue(Thread.interrupted(), "the caller stays interrupted");
        mayEnd.countDown();
        work.awaitEnd();
        assertEquals("done", work.get());
    }

    @Test
    void theEndOfWorkThatFailedIsAnEnd() {
        Ahead<String> work = Ahead.of("work", () -> {
            throw new IOException("no quorum");
        });
        work.awaitEnd();
        assertEquals("no quorum", assertThrows(IOException.class, work::get).getMessage());
    }
}
