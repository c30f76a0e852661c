package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.quorum.Txn.Op.EndTxn;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Batch writes without an app: numbers, and ends that happen once. */
@Tag("memory")
class JobLedgerTest {
    private static final Driver DRIVER = new Driver("here", 7);
    private static final List<Ending> ENDINGS = List.of(new Ending(100, (short) 3));

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private long nowMs = 1_000;
    private final JobLedger ledger = new JobLedger(keys, new Leftovers(keys, new OpenTransactions() {
        @Override
        public List<Open> open(String prefix, long timeoutMs) {
            return List.of(new Open(prefix + "0.0", 99, (short) 0), new Open(prefix + "0.1", 100, (short) 3));
        }

        @Override
        public boolean settle(Collection<String> transactionalIds, long timeoutMs) {
            return true;
        }
    }), () -> nowMs);

    @Test
    void writesThatRunBesideOneAnotherHaveNumbersOfTheirOwn() throws IOException {
        assertEquals(0, ledger.claim("one", DRIVER).number());
        assertEquals(1, ledger.claim("two", DRIVER).number());
    }

    @Test
    void aNumberIsTakenAgainMinutesAfterItsWrite() throws IOException {
        ledger.commit(ledger.claim("one", DRIVER), ENDINGS);
        nowMs += 5 * 60 * 1000;
        assertEquals(1, ledger.claim("two", DRIVER).number());
        nowMs++;
        assertEquals(0, ledger.claim("three", DRIVER).number());
        nowMs += 24 * 3600 * 1000 + 1;
        assertEquals(0, ledger.claim("four", DRIVER).number(), "its driver is gone for a day");
    }

    @Test
    void aCommitAbortsTheOtherAttempts() throws IOException {
        ledger.commit(ledger.claim("one", DRIVER), ENDINGS);
        assertEquals(List.of(new EndTxn(99, (short) 0, false), new EndTxn(100, (short) 3, true)), keys.ends());
    }

    @Test
    void aTaskThatBeginsLateIsRefused() throws IOException {
        JobNumber job = ledger.claim("one", DRIVER);
        ledger.require(job);
        ledger.commit(job, ENDINGS);
        assertEquals("the batch write with the number 0 has ended, and this task began too late",
                assertThrows(SinkFailedException.class, () -> ledger.require(job)).getMessage());
    }

    @Test
    void aWriteThatSomebodyElseEndedIsNotCommitted() throws IOException {
        JobNumber job = ledger.claim("one", DRIVER);
        ledger.abort(job, List.of());
        List<EndTxn> aborted = keys.ends();
        nowMs++;
        assertEquals("somebody else ended the batch write with the number 0: its rows are not visible",
                assertThrows(SinkFailedException.class, () -> ledger.commit(job, ENDINGS)).getMessage());
        assertEquals(aborted, keys.ends());
    }

    @Test
    void anAbortEndsWhatKilledTasksLeftOpen() throws IOException {
        JobNumber ended = ledger.abort(ledger.claim("one", DRIVER), ENDINGS);
        List<EndTxn> both = List.of(new EndTxn(99, (short) 0, false), new EndTxn(100, (short) 3, false));
        assertEquals(both, keys.ends().subList(keys.ends().size() - 2, keys.ends().size()));
        int before = keys.ends().size();
        ledger.lookAgain(ended);
        assertEquals(before + 2, keys.ends().size());
    }

    @Test
    void anAbortOfANumberThatAnotherWriteTookEndsOnlyItsOwn() throws IOException {
        JobNumber job = ledger.claim("one", DRIVER);
        nowMs += 24 * 3600 * 1000 + 1;
        ledger.claim("two", DRIVER);
        ledger.lookAgain(ledger.abort(job, ENDINGS));
        assertEquals(List.of(new EndTxn(100, (short) 3, false)), keys.ends());
    }

    @Test
    void theNextWriteEndsWhatWasOpenedBehindTheLastLook() throws IOException {
        ledger.abort(ledger.claim("one", DRIVER), List.of());
        int before = keys.ends().size();
        assertEquals(1, ledger.claim("two", DRIVER).number());
        assertEquals(before + 2, keys.ends().size());
        ledger.claim("three", DRIVER);
        assertEquals(before + 4, keys.ends().size(), "of the write that has ended alone");
    }
}
