package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Txn.Op.EndTxn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What the sink adds to the transaction that ends a batch of real-time mode, on keys in memory. */
@Tag("memory")
class EpochRowsTest {
    private static final Driver DRIVER = new Driver("here", 7);
    private static final List<Ending> ENDINGS = List.of(new Ending(100, (short) 3), new Ending(101, (short) 0));
    private static final String FILE = "/fs/p/q/commits/0";

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private final Leftovers leftovers = new Leftovers(keys, new Nobody());
    private final Ledger ledger = new Ledger(keys, leftovers, () -> 1_000);
    private final Committed batch = new Committed(0, "run1", 5, 2, 2_000, Map.of("t", 5L));
    private int looks;
    private EpochRows rows;

    /** No transaction is open that is not told of. */
    private static final class Nobody implements OpenTransactions {
        @Override
        public List<Open> open(String prefix, long timeoutMs) {
            return List.of();
        }

        @Override
        public boolean settle(Collection<String> transactionalIds, long timeoutMs) {
            return true;
        }
    }

    @BeforeEach
    void begin() throws IOException {
        Standing standing = ledger.enter("app", "run1", "q", DRIVER);
        rows = new EpochRows(ledger, leftovers, standing, batch, ENDINGS, () -> looks++);
    }

    /** As the file manager does it. */
    private TxnResult end() throws IOException {
        Txn txn = new Txn().compare(FILE, 0).put(FILE, new byte[] {1});
        rows.addTo(txn);
        TxnResult result = keys.commit(txn, any -> false);
        if (!result.succeeded()) {
            rows.explain(result);
        }
        return result;
    }

    @Test
    void theTransactionEndsTheProducersAndNotesTheBatchDown() throws IOException {
        assertTrue(end().succeeded());
        assertEquals(List.of(new EndTxn(100, (short) 3, true), new EndTxn(101, (short) 0, true)), keys.ends());
        assertArrayEquals(batch.encode(), keys.get(SinkKeys.batchKey("app")).orElseThrow().value());
        assertEquals(0, ledger.enter("app", "run1", "q", DRIVER).lastBatch());
        rows.decided();
        assertEquals(1, looks);
    }

    @Test
    void aProducerThatWasAbortedBeforeEndsNothing() {
        keys.refuse(101, "aborted by its time limit");
        String told = assertThrows(SinkFailedException.class, this::end).getMessage();
        assertTrue(told.startsWith("the commit of batch 0: the transactions of 1 tasks were aborted before (aborted by its time "
                + "limit). Their time limit is 'kafka.transaction.timeout.ms'"), told);
        assertEquals(List.of(), keys.ends());
        assertTrue(keys.get(FILE).isEmpty());
    }

    @Test
    void aSinkOfANewerRunIsNotWritten() throws IOException {
        ledger.enter("app", "run2", "q", DRIVER);
        String told = assertThrows(SinkFencedException.class, this::end).getMessage();
        assertTrue(told.contains("run run1 no longer owns the sink of app, and nothing of batch 0 became visible. The owner is run "
                + "run2 on host here"), told);
        assertTrue(keys.get(FILE).isEmpty());
    }

    @Test
    void aBatchThatBecameVisibleMeanwhileIsNotVisibleTwice() throws IOException {
        Committed others = new Committed(0, "run1", 9, 1, 2_000, Map.of("t", 9L));
        keys.commit(new Txn().put(SinkKeys.batchKey("app"), others.encode()), any -> false);
        String told = assertThrows(SinkFailedException.class, this::end).getMessage();
        assertTrue(told.startsWith("batch 0 of app became visible while its tasks ran, with the rows of others"), told);
        assertEquals(List.of(), keys.ends());
    }

    @Test
    void whatIsInTheWayOfTheFileIsForItsManager() {
        assertDoesNotThrow(() -> rows.explain(TxnResult.refused(List.of(FILE))));
    }

    @Test
    void aBatchThatFailedIsGivenUp() {
        rows.failed();
        assertEquals(List.of(new EndTxn(100, (short) 3, false), new EndTxn(101, (short) 0, false)), keys.ends());
        assertEquals(0, looks);
    }

    @Test
    void aTransactionLastsLongerThanItsBatch() {
        assertDoesNotThrow(() -> RealTime.requireTime(900_000, 870_000));
        String told = assertThrows(IllegalArgumentException.class, () -> RealTime.requireTime(900_000, 870_001)).getMessage();
        assertEquals("Option 'kafka.transaction.timeout.ms' is '900000', expected 900001 or more, and 'transaction.max.timeout.ms' of "
                + "the nodes not below it: the rows of a batch of real-time mode wait 870001 ms for its end. Or shorten the trigger; "
                + "or set 'realTimeDelivery' to 'at-least-once'", told);
    }
}
