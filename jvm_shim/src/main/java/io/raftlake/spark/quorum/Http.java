package io.raftlake.spark.quorum;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Sends one request to the nodes until an answer decides it.
 *
 * <p>What each answer means: 307 names the leader, which is asked next, with the same method and body. 503 with Retry-After
 * and an unreachable node: nothing was proposed, so the next node is asked. 504, a lost connection, and anything that no
 * node said: a read goes to the next node, and a write is {@link Unknown} to the caller, who reads back. 507 with
 * Retry-After: room may come. Everything else of 4xx is final.
 *
 * <p>The leader that answered last is asked first by writes.
 */
final class Http {
    /** A write was sent, and no node said what became of it. */
    static final class Unknown extends Exception {
        private static final long serialVersionUID = 1;

        Unknown(String told) {
            super(told);
        }
    }

    /** One try ends after so long, so that a node that hangs does not use up the deadline. */
    private static final long ATTEMPT_MS_MAX = 15_000;

    /** What a node answers to a write that it did not propose; 503 counts with Retry-After only. */
    private static final Set<Integer> NOT_PROPOSED = Set.of(400, 403, 404, 405, 408, 409, 413, 415, 421, 503, 507);

    private static final Set<Integer> PASSING = Set.of(500, 502, 503, 504);

    private final List<String> fronts;
    private int turn;
    private String leader;

    Http(List<String> fronts) {
        this.fronts = fronts;
    }

    List<String> fronts() {
        return fronts;
    }

    /** The answer to a read: 200 or 404. */
    Answer read(String target, Deadline deadline) throws IOException {
        try {
            return send("GET", target, null, deadline);
        } catch (Unknown unknown) {
            throw new IllegalStateException("a read changes nothing", unknown);
        }
    }

    /** The answer to a transaction: 200 or 412, of a node. */
    Answer write(String target, byte[] body, Deadline deadline) throws IOException, Unknown {
        return send("POST", target, body, deadline);
    }

    private Answer send(String method, String target, byte[] body, Deadline deadline)
            throws IOException, Unknown {
        boolean isWrite = body != null;
        Map<String, String> told = new LinkedHashMap<>();
        while (true) {
            String front = choose(isWrite);
            Answer answer = null;
            try {
                answer = Exchange.ask(front + target, body, Math.min(ATTEMPT_MS_MAX, deadline.remainingMs()));
            } catch (Exchange.Unreachable unreachable) {
                told.put(front, "not reachable: " + unreachable.getMessage());
            } catch (IOException lost) {
                // Answers that do not come in time are exceptions of the same class as an interrupt.
                if (Thread.currentThread().isInterrupted()) {
                    throw lost;
                }
                forget(front);
                if (isWrite) {
                    throw new Unknown("sent to " + front + ", it had no answer: " + reason(lost));
                }
                told.put(front, "no answer: " + reason(lost));
            }
            if (answer != null && decides(answer, front, isWrite, told, deadline)) {
                return answer;
            }
            if (answer == null) {
                forget(front);
            }
            if (answer == null || answer.status() != 307 || told.containsKey(front)) {
                deadline.pause();
            }
            if (answer != null && answer.status() == 307) {
                // A second redirect of this node means that it does not know better: pause before the next one.
                told.put(front, "307: " + leader + " leads");
            }
            if (deadline.isOver()) {
                throw new QuorumUnavailableException(method + " " + target + " was not accepted within "
                        + deadline.timeoutMs() + " ms (raftlake.request.timeout.ms): " + told + "; " + Servers.SETTING
                        + " lists " + fronts);
            }
        }
    }

    /** Whether this answer is the one; if not, what to ask next is settled. */
    private boolean decides(
            Answer answer, String front, boolean isWrite, Map<String, String> told, Deadline deadline)
            throws IOException, Unknown {
        int status = answer.status();
        if (status == 200 || status == (isWrite ? 412 : 404)) {
            if (isWrite) {
                lead(front);
            }
            return true;
        }
        String text = status + ": " + Json.errorText(answer.body());
        if (status == 307) {
            lead(answer.leader(isWrite));
            return false;
        }
        boolean hasRetryAfter = answer.hasRetryAfter();
        if (isWrite && (!NOT_PROPOSED.contains(status) || status == 503 && !hasRetryAfter || !answer.isOfANode())) {
            forget(front);
            throw new Unknown(front + " answered " + text);
        }
        if (!PASSING.contains(status) && !(status == 507 && hasRetryAfter)) {
            throw new RefusedException(front + " answered " + text);
        }
        told.put(front, text);
        forget(front);
        answer.waitAsTold(deadline);
        return false;
    }

    // --- whom to ask -------------------------------------------------------------------------------------------------

    private synchronized String choose(boolean isWrite) {
        return isWrite && leader != null ? leader : fronts.get(Math.floorMod(turn, fronts.size()));
    }

    private synchronized void lead(String front) {
        leader = front;
    }

    private synchronized void forget(String front) {
        if (front.equals(leader)) {
            leader = null;
        }
        if (front.equals(fronts.get(Math.floorMod(turn, fronts.size())))) {
            turn++;
        }
    }

    // --- texts -------------------------------------------------------------------------------------------------------

    static String reason(Throwable error) {
        return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    }

    /** For a thread that was interrupted: Spark stops a query so, and knows this exception. */
    static InterruptedIOException interrupted(String when) {
        Thread.currentThread().interrupt();
        return new InterruptedIOException("interrupted " + when);
    }
}
