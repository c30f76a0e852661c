package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** A question is asked as often as the options say, and its last error names the option. */
class AskingTest {
    private static Quorum.Patience patience(long retries, String setting) {
        return new Quorum.Patience(1_000, retries, 1, 0, setting);
    }

    private static String failure(Quorum.Patience patience, AtomicInteger asked, IOException error) {
        return assertThrows(UncheckedIOException.class, () -> Asking.patiently(patience, "topics", () -> {
            asked.incrementAndGet();
            throw error;
        })).getCause().getMessage();
    }

    @Test
    void anOutageIsAskedThroughAndEndsInALineThatNamesTheOption() {
        AtomicInteger asked = new AtomicInteger();
        QuorumUnavailableException away = new QuorumUnavailableException("no node answers");
        assertEquals("the quorum could not be asked for topics in 0 s (1 try, as 'kafka.max.block.ms' says): no node answers",
                failure(patience(0, "kafka.max.block.ms"), asked, away));
        assertEquals(1, asked.get());
        String told = failure(patience(2, "fetchOffset.numRetries"), asked, away);
        assertTrue(told.contains("(3 tries, as 'fetchOffset.numRetries' says)"), told);
        assertEquals(4, asked.get());
    }

    @Test
    void aLongCauseIsCutAndNotTheOption() {
        String told = failure(patience(0, "fetchOffset.numRetries"), new AtomicInteger(),
                new QuorumUnavailableException("x".repeat(1_000)));
        assertEquals(Asking.LINE_CHARACTERS_MAX, told.length());
        assertTrue(told.contains("fetchOffset.numRetries") && told.endsWith("x…"), told);
    }

    @Test
    void aRefusalIsAskedOnce() {
        AtomicInteger asked = new AtomicInteger();
        assertEquals("no", failure(patience(5, "fetchOffset.numRetries"), asked, new IOException("no")));
        assertEquals(1, asked.get());
    }

    @Test
    void anAnswerEndsIt() {
        AtomicInteger asked = new AtomicInteger();
        assertEquals("here", Asking.patiently(patience(2, "fetchOffset.numRetries"), "topics", () -> {
            if (asked.incrementAndGet() < 3) {
                throw new QuorumUnavailableException("not yet");
            }
            return "here";
        }));
    }
}
