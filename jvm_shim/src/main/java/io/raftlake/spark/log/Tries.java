package io.raftlake.spark.log;

import io.raftlake.spark.quorum.Deadline;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/** The tries of one call: how long they may go on, the pauses between them, and what each node said last. */
final class Tries {
    /** One try ends after so long, so that a node that hangs does not use up the deadline. */
    static final long ATTEMPT_MS = 6_000;

    /** What only asks goes to another node soon, in case this one is paused. Each round gives the nodes more time. */
    private static final long PATIENCE_MS = 1_000;

    private static final long PAUSE_MS_FIRST = 20;

    /** While a leader is elected it pays to look again soon. */
    private static final long PAUSE_MS_MAX = 100;

    /** A try that has less time than this is not begun: it would leave its outcome open, and tell nothing. */
    private static final long LAST_TRY_MS = 1_000;

    private final Map<String, String> told = new LinkedHashMap<>();
    private final Deadline deadline;
    private final String what;
    private final String setting;
    private final long attemptMsMax;
    private final long lastTryMs;
    private long pauseMs = PAUSE_MS_FIRST;
    private long patienceMs = PATIENCE_MS;

    Tries(String what, long timeoutMs) {
        this(what, timeoutMs, ATTEMPT_MS, LogSettings.TIMEOUT);
    }

    /** {@code attemptMsMax}: how long one try may take. {@code setting}: what {@code timeoutMs} is the value of. */
    Tries(String what, long timeoutMs, long attemptMsMax, String setting) {
        this.setting = setting;
        this.what = what;
        this.attemptMsMax = attemptMsMax;
        this.deadline = new Deadline(timeoutMs);
        this.lastTryMs = Math.min(LAST_TRY_MS, timeoutMs / 4);
    }

    String what() {
        return what;
    }

    /** How long one try may take, beside {@code waitMs} that the node is asked to wait. */
    long attemptMs(long waitMs) {
        return Math.max(1, Math.min(attemptMsMax + waitMs, deadline.remainingMs()));
    }

    /** How long one try of what changes nothing, and any node answers at once, may take: longer after each {@link #pause}. */
    long askMs() {
        return Math.min(patienceMs, attemptMs(0));
    }

    void note(InetSocketAddress node, Exception error) {
        note(node.getHostString() + ":" + node.getPort(), Connection.reason(error));
    }

    void note(String who, String said) {
        told.put(who, said);
    }

    boolean isOver() {
        return deadline.remainingMs() <= lastTryMs;
    }

    /** Leaves time for another try. */
    void pause() throws InterruptedIOException {
        long some = pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs / 2 + 1);
        deadline.pause(Math.min(some, Math.max(0, deadline.remainingMs() - lastTryMs)));
        pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX);
        patienceMs = Math.min(patienceMs * 2, ATTEMPT_MS);
    }

    /** A pause of so many ms, cut by the deadline. */
    void pauseFor(long ms) throws InterruptedIOException {
        deadline.pause(ms);
    }

    /** Nothing was changed, or read. */
    QuorumUnavailableException unavailable() {
        return new QuorumUnavailableException(what + " was not accepted within " + deadline.timeoutMs() + " ms ("
                + setting + "): " + said());
    }

    /** No node has failed a try so far. */
    boolean areSound() {
        return told.isEmpty();
    }

    /** The last word of each. */
    String said() {
        return told.toString();
    }
}
