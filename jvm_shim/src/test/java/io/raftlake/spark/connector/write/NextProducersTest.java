package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.ProducerId;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Producers that are asked for before their batch, with a clock of the test's own and answers of a quorum that it plays. */
@Timeout(30)
final class NextProducersTest {
    private final Map<Integer, AtomicInteger> askedBy = new ConcurrentHashMap<>();
    private long nowMs = 5_000;
    private final NextProducers producers = new NextProducers(() -> nowMs);

    /** Each question of a task has another answer. */
    private ProducerId answer(int task) throws IOException {
        int before = askedBy.computeIfAbsent(task, first -> new AtomicInteger()).getAndIncrement();
        if (task == 13) {
            throw new QuorumUnavailableException("nobody answers");
        }
        if (task == 14) {
            throw new IllegalStateException("a fault of the question");
        }
        return new ProducerId(100 + task, (short) before);
    }

    private static ProducerId of(int task, int epoch) {
        return new ProducerId(100 + task, (short) epoch);
    }

    @Test
    void theFirstBatchHasNone() throws IOException {
        assertEquals(Map.of(), producers.take());
    }

    @Test
    void eachTaskHasItsOwnAndEachBatchOthers() throws IOException {
        producers.ask(List.of(0, 2, 5), this::answer);
        assertEquals(Map.of(0, of(0, 0), 2, of(2, 0), 5, of(5, 0)), producers.take());
        producers.ask(List.of(2, 3), this::answer);
        assertEquals(Map.of(2, of(2, 1), 3, of(3, 0)), producers.take());
        producers.ask(List.of(), this::answer);
        assertEquals(Map.of(), producers.take());
    }

    @Test
    void noneIsGivenTwice() throws IOException {
        producers.ask(List.of(1), this::answer);
        assertEquals(Map.of(1, of(1, 0)), producers.take());
        assertEquals(Map.of(), producers.take());
    }

    @Test
    void whereTheQuorumCouldNotBeAskedTheTaskAsks() throws IOException {
        producers.ask(List.of(12, 13, 14, 15), this::answer);
        assertEquals(Map.of(12, of(12, 0), 15, of(15, 0)), producers.take());
        assertEquals(1, askedBy.get(13).get());
    }

    @Test
    void asManyAreAskedForAsADriverAsksAtATime() throws IOException {
        producers.ask(IntStream.range(20, 20 + NextProducers.TASKS_MAX).boxed().toList(), this::answer);
        assertEquals(NextProducers.TASKS_MAX, producers.take().size());
        producers.ask(IntStream.range(40, 41 + NextProducers.TASKS_MAX).boxed().toList(), this::answer);
        Map<Integer, ProducerId> found = producers.take();
        assertEquals(NextProducers.TASKS_MAX, found.size());
        assertTrue(!found.containsKey(40 + NextProducers.TASKS_MAX) && !askedBy.containsKey(40 + NextProducers.TASKS_MAX));
    }

    @Test
    void whatNodesMayHaveForgottenIsNotUsed() throws IOException {
        producers.ask(List.of(1), this::answer);
        nowMs += NextProducers.AGE_MS_MAX;
        assertEquals(Map.of(1, of(1, 0)), producers.take());
        producers.ask(List.of(1), this::answer);
        nowMs += NextProducers.AGE_MS_MAX + 1;
        assertEquals(Map.of(), producers.take());
        producers.ask(List.of(1), this::answer);
        assertEquals(Map.of(1, of(1, 2)), producers.take());
    }

    @Test
    void aBatchWaitsForAllThatIsUnderWay() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        CountDownLatch areAsked = new CountDownLatch(2);
        producers.ask(List.of(3, 4), task -> {
            areAsked.countDown();
            await(mayAnswer);
            return of(task, 0);
        });
        // Both are under way at a time.
        areAsked.await();
        Thread answering = new Thread(mayAnswer::countDown);
        answering.start();
        assertEquals(Map.of(3, of(3, 0), 4, of(4, 0)), producers.take());
        answering.join();
    }

    @Test
    void aQueryThatIsStoppedDoesNotWait() {
        CountDownLatch never = new CountDownLatch(1);
        producers.ask(List.of(1), task -> {
            await(never);
            return of(task, 0);
        });
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, producers::take);
        assertTrue(Thread.interrupted());
    }

    private static void await(CountDownLatch latch) throws InterruptedIOException {
        try {
            latch.await();
        } catch (InterruptedException interrupted) {
            throw new InterruptedIOException("interrupted");
        }
    }
}
