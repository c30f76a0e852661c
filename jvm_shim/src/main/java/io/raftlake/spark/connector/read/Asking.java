package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Questions of the driver, asked again while the quorum is away, as often and as long as the options say. What a node has
 * answered for good is not asked again. With the defaults a query waits for four minutes.
 */
public final class Asking {
    /** What one line of an error may have. */
    static final int LINE_CHARACTERS_MAX = 250;

    private static final Logger LOG = LoggerFactory.getLogger(Asking.class);

    private Asking() {}

    /** A question of the log client. */
    @FunctionalInterface
    public interface Question<T> {
        T ask() throws IOException;
    }

    /** The answer. An UncheckedIOException, of a cause in one line, where there is none in time, or where it is a refusal. */
    public static <T> T patiently(Quorum.Patience patience, String what, Question<T> question) {
        long askedAtNs = System.nanoTime();
        for (long retry = 0; ; retry++) {
            try {
                return question.ask();
            } catch (QuorumUnavailableException outage) {
                if (retry >= patience.retriesMax()) {
                    long seconds = Math.round((System.nanoTime() - askedAtNs) / 1e9);
                    throw new UncheckedIOException(new QuorumUnavailableException(line("the quorum could not be asked for "
                            + what + " in " + seconds + " s (" + (retry + 1) + (retry == 0 ? " try" : " tries") + ", as '"
                            + patience.setting() + "' says): " + outage.getMessage())));
                }
                LOG.warn("{}: {}; asked again in {} ms", what, outage.getMessage(), patience.intervalMs());
                pause(patience.intervalMs());
            } catch (IOException refused) {
                throw new UncheckedIOException(refused);
            }
        }
    }

    static String line(String told) {
        return told.length() <= LINE_CHARACTERS_MAX ? told : told.substring(0, LINE_CHARACTERS_MAX - 1) + "…";
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new InterruptedIOException("interrupted while the quorum was away"));
        }
    }
}
