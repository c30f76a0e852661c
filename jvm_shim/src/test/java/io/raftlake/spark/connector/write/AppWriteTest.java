package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.log.ScriptedListener;
import io.raftlake.spark.quorum.Txn.Op.EndTxn;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Batch writes of one app, one after another, as {@code foreachBatch} makes them. */
@Tag("memory")
@Timeout(60)
class AppWriteTest {
    private static final WriterCommitMessage[] NO_ROWS = {};

    /** What a scripted node tells of each open transaction. */
    private static final EndTxn ABORTED = new EndTxn(7, (short) 3, false);

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private ScriptedNode front;
    private ScriptedListener node;

    @BeforeEach
    void start() throws IOException {
        front = new ScriptedNode(keys);
        node = new ScriptedListener();
        node.config("http.listener", front.front());
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
        front.close();
    }

    private AppWrite write() {
        SinkOptions options = SinkOptions.of(Map.of("kafka.bootstrap.servers", node.servers(), "topic", "t"));
        return new AppWrite(options, "app", "run", "query", new SinkProgress(), false);
    }

    private void open(Standing standing) {
        node.hasTransaction(SinkKeys.appTransactionalId("app", standing.generation(), 0, 1), "Ongoing");
    }

    /** What an attempt that was lost amid a write leaves is ended with it, and what the next write opens is not. */
    private void requireSweptAtOnce(AppWrite first, Runnable end, AppWrite next) throws InterruptedException {
        open(first.begin());
        end.run();
        List<EndTxn> ended = keys.ends();
        assertEquals(List.of(ABORTED), ended);
        open(next.begin());
        Thread.sleep(4 * LaterSweep.IDLE_MS);
        assertEquals(ended, keys.ends());
    }

    @Test
    void aCommitSweepsAtOnceAndNotAmidTheNextWrite() throws InterruptedException {
        AppWrite first = write();
        requireSweptAtOnce(first, () -> first.commit(0, NO_ROWS), write());
    }

    @Test
    void anAbortSweepsAtOnceAndNotAmidTheNextWrite() throws InterruptedException {
        AppWrite first = write();
        requireSweptAtOnce(first, () -> first.abort(NO_ROWS), write());
    }

    @Test
    void anAbortLooksAgainForTasksThatEndLater() {
        AppWrite write = write();
        write.lookAgain();
        assertEquals(List.of(), keys.ends());
        Standing standing = write.begin();
        write.abort(NO_ROWS);
        open(standing);
        write.lookAgain();
        assertEquals(List.of(ABORTED), keys.ends());
    }

    /** As the stop of a query interrupts it. What an attempt on a lost executor opens comes behind the first sweep. */
    @Test
    void anAbortThatIsInterruptedLooksAgainForTasksThatEndLater() throws InterruptedException {
        AppWrite write = write();
        Standing standing = write.begin();
        Thread.currentThread().interrupt();
        AbortedWrite.end("a batch of app", () -> {
            write.abort(NO_ROWS);
            open(standing);
            return write::lookAgain;
        });
        assertTrue(Thread.interrupted(), "the caller stays interrupted");
        while (keys.ends().isEmpty()) {
            Thread.sleep(10);
        }
        assertEquals(List.of(ABORTED), keys.ends());
    }
}
