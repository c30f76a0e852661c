package io.raftlake.spark.log;

import static io.raftlake.spark.log.ScriptedListener.AT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.ScriptedListener.Step;
import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.log.Transactions.Patience;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Producers of transactions on a scripted listener: what stands in the log after lost answers, errors and closed connections. */
@Tag("memory")
class TransactionalProducerTest {
    private static final Patience PATIENCE = new Patience(60_000, 60_000, 60_000, 0);

    /** Of calls whose time runs out: long enough for answers on a busy machine, and waited for. */
    private static final long SHORT_MS = 4_000;

    private ScriptedListener node;
    private Transactions transactions;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        transactions = new Transactions(List.of(node.address()));
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
    }

    private TransactionalProducer producer(Codec codec) throws IOException {
        return transactions.producer("id", codec, PATIENCE);
    }

    private static void append(TransactionalProducer producer, String value) throws IOException {
        Out record = new Out().i8(0).varint(0).varint(0).field(null).field(value.getBytes(StandardCharsets.UTF_8)).varint(0);
        Out content = new Out().varint(record.size()).append(record);
        producer.append(AT, content.array(), content.size(), 1);
    }

    private List<String> values() throws IOException {
        List<String> values = new ArrayList<>();
        for (byte[] bytes : node.batches()) {
            Batches batches = new Batches(ByteBuffer.wrap(bytes), List.of());
            while (batches.next()) {
                batches.forEach(each -> values.add(new String(each.record().value(), StandardCharsets.UTF_8)));
            }
        }
        return values;
    }

    private List<String> appendNine(TransactionalProducer producer) throws IOException {
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 9; number++) {
            append(producer, "v" + number);
            expected.add("v" + number);
        }
        producer.flush();
        return expected;
    }

    @Test
    void batchesBelongToTheTransactionOfTheirProducer() throws IOException {
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            assertEquals(appendNine(producer), values());
            for (byte[] bytes : node.batches()) {
                ByteBuffer batch = ByteBuffer.wrap(bytes);
                assertEquals(Batches.TRANSACTIONAL, batch.getShort(Batches.ATTRIBUTES_AT) & Batches.TRANSACTIONAL);
                assertEquals(producer.producerId(), batch.getLong(Batches.PRODUCER_ID_AT));
            }
            assertEquals(List.of(new TransactionalProducer.Appended(AT, 9, 3, 12)), producer.appended());
            assertEquals(0, producer.retries());
        }
    }

    @Test
    void whoWritesNextMayBeAskedForBefore() throws IOException {
        ProducerId next = transactions.nextOf("id", PATIENCE);
        try (TransactionalProducer producer = transactions.producer("id", next, Codec.NONE, PATIENCE)) {
            assertEquals(appendNine(producer), values());
            assertEquals(next, new ProducerId(producer.producerId(), producer.epoch()));
        }
        assertEquals(1, node.asked(Api.INIT_PRODUCER_ID));
    }

    @Test
    void aTransactionMayBeginBeforeItsFirstAppend() throws IOException {
        ProducerId next = transactions.nextOf("id", PATIENCE);
        transactions.begin("id", next, List.of(AT, new Partition("u", 7)), 60_000);
        String producer = "id/" + next.id() + "/" + next.epoch() + "/";
        assertEquals(List.of(producer + AT, producer + new Partition("u", 7)), node.added);
        node.next(Api.ADD_PARTITIONS_TO_TXN, Step.refused(Code.CONCURRENT_TRANSACTIONS), Step.refused(Code.PRODUCER_FENCED));
        RefusedException late = assertThrows(RefusedException.class, () -> transactions.begin("id", next, List.of(AT), 60_000));
        assertTrue(late.getMessage().startsWith("no early begin of 'id': PRODUCER_FENCED"), late.getMessage());
    }

    @ParameterizedTest
    @EnumSource(Codec.class)
    void everyCodecIsReadAgain(Codec codec) throws IOException {
        String value = "raftlake".repeat(2000);
        try (TransactionalProducer producer = producer(codec)) {
            append(producer, value);
            producer.flush();
            assertEquals(List.of(value), values());
            assertEquals(codec != Codec.NONE, producer.sentBytes() < value.length());
        }
    }

    @Test
    void batchesWhoseAnswersWereLostStandOnceAndInOrder() throws IOException {
        node.next(Api.PRODUCE, Step.served(), Step.lostAfter(), Step.served(), Step.lostBefore());
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            assertEquals(appendNine(producer), values());
            assertTrue(producer.retries() > 0);
        }
    }

    // --- connections go from one producer to the next ---

    /** How many connections to the node one producer opens. The first one opens those that only ask, too. */
    private int opensInOneTurn() throws IOException {
        int before = node.connections();
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            append(producer, "v");
            producer.flush();
            assertEquals(0, producer.retries());
        }
        return node.connections() - before;
    }

    @Test
    void theNextProducerHasTheConnectionOfTheOneBefore() throws IOException {
        assertTrue(opensInOneTurn() > 0);
        assertEquals(List.of(0, 0), List.of(opensInOneTurn(), opensInOneTurn()));
        assertEquals(List.of("v", "v", "v"), values());
    }

    @Test
    void twoProducersAtOnceHaveAConnectionEach() throws IOException {
        opensInOneTurn();
        int before = node.connections();
        try (TransactionalProducer first = producer(Codec.NONE); TransactionalProducer second = producer(Codec.NONE)) {
            append(first, "v");
            append(second, "v");
            first.flush();
            second.flush();
            assertEquals(1, node.connections() - before);
        }
        assertEquals(0, opensInOneTurn());
    }

    @Test
    void aConnectionOnWhichAnAnswerIsMissingIsNotUsedAgain() throws IOException {
        opensInOneTurn();
        node.next(Api.PRODUCE, Step.of(Step.What.SILENCE));
        try (TransactionalProducer left = producer(Codec.NONE)) {
            append(left, "left");
        }
        assertEquals(1, opensInOneTurn());
    }

    @Test
    void aConnectionThatTheNodeHasClosedMeanwhileIsNotUsedAgain() throws IOException {
        opensInOneTurn();
        node.closeConnections();
        assertTrue(opensInOneTurn() > 0);
        assertEquals(List.of("v", "v"), values());
    }

    @Test
    void fewConnectionsAreKept() throws IOException {
        List<TransactionalProducer> producers = new ArrayList<>();
        for (int number = 0; number < Idle.COUNT_MAX + 2; number++) {
            producers.add(producer(Codec.NONE));
            append(producers.get(number), "v");
            producers.get(number).flush();
        }
        for (TransactionalProducer each : producers) {
            each.close();
        }
        int before = node.connections();
        producers.clear();
        for (int number = 0; number < Idle.COUNT_MAX + 2; number++) {
            producers.add(producer(Codec.NONE));
            append(producers.get(number), "v");
            producers.get(number).flush();
        }
        assertEquals(2, node.connections() - before);
        for (TransactionalProducer each : producers) {
            each.close();
        }
    }

    @Test
    void moreThanASocketTakesAtOnceArrivesWhole() throws IOException {
        node.next(Api.PRODUCE, Step.served(), Step.lostAfter());
        List<String> expected = new ArrayList<>();
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            for (int number = 0; number < 40; number++) {
                expected.add((number + "-").repeat(300_000));
                append(producer, expected.get(number));
            }
            producer.flush();
            assertEquals(expected, values());
        }
    }

    @Test
    void whatPassesIsSentAgain() throws IOException {
        node.next(Api.PRODUCE, Step.refused(Code.NOT_LEADER_OR_FOLLOWER), Step.served(), Step.refused(Code.CONCURRENT_TRANSACTIONS),
                Step.doubted(Code.REQUEST_TIMED_OUT), Step.of(Step.What.GARBAGE));
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            assertEquals(appendNine(producer), values());
        }
    }

    @Test
    void aTransactionThatWasEndedIsToldWithItsSetting() throws IOException {
        node.next(Api.PRODUCE, Step.refused(Code.INVALID_PRODUCER_EPOCH));
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            RefusedException error = assertThrows(RefusedException.class, () -> appendNine(producer));
            assertTrue(error.getMessage().contains("kafka.transaction.timeout.ms"), error.getMessage());
        }
    }

    @Test
    void aTopicThatIsGoneEndsTheProducer() throws IOException {
        node.dropTopic();
        try (TransactionalProducer producer = producer(Codec.NONE)) {
            assertThrows(UnknownTopicException.class, () -> appendNine(producer));
        }
        assertEquals(OptionalInt.empty(), transactions.partitions("t", 60_000));
    }

    @Test
    void anOutageThatOutlastsThePatienceNamesTheSetting() throws IOException {
        for (int count = 0; count < 100; count++) {
            node.next(Api.PRODUCE, Step.refused(Code.NOT_LEADER_OR_FOLLOWER));
        }
        Patience little = new Patience(60_000, 60_000, 1_500, 0);
        try (TransactionalProducer producer = transactions.producer("id", Codec.NONE, little)) {
            QuorumUnavailableException error = assertThrows(QuorumUnavailableException.class, () -> appendNine(producer));
            assertTrue(error.getMessage().contains("kafka.delivery.timeout.ms"), error.getMessage());
            assertTrue(error.getMessage().contains("NOT_LEADER_OR_FOLLOWER"), error.getMessage());
        }
    }

    @Test
    void aCoordinatorThatMovesIsFoundAgain() throws IOException {
        node.next(Api.INIT_PRODUCER_ID, Step.refused(Code.NOT_COORDINATOR), Step.lostBefore());
        producer(Codec.NONE).close();
        assertEquals(3, node.asked(Api.FIND_COORDINATOR));
    }

    @Test
    void aCoordinatorThatNobodyKnowsIsNamed() {
        for (int tries = 0; tries < 1000; tries++) {
            node.next(Api.FIND_COORDINATOR, Step.refused(Code.COORDINATOR_NOT_AVAILABLE));
        }
        QuorumUnavailableException told =
                assertThrows(QuorumUnavailableException.class, () -> transactions.settle(List.of("b"), SHORT_MS));
        assertTrue(told.getMessage().contains("COORDINATOR_NOT_AVAILABLE"), told.getMessage());
    }

    @Test
    void aTimeLimitThatNodesRefuseIsNamed() {
        node.next(Api.INIT_PRODUCER_ID, Step.refused(Code.INVALID_TRANSACTION_TIMEOUT));
        RefusedException error = assertThrows(RefusedException.class, () -> producer(Codec.NONE));
        assertTrue(error.getMessage().contains("a time limit of 60000 ms: INVALID_TRANSACTION_TIMEOUT"), error.getMessage());
    }

    @Test
    void openTransactionsAreThoseOfThePrefixThatAreOngoing() throws IOException {
        node.hasTransaction("a.1", "Ongoing");
        node.hasTransaction("a.2", "CompleteCommit");
        node.hasTransaction("b.1", "Ongoing");
        assertEquals(List.of(new Open("a.1", 7, (short) 3)), transactions.open("a.", 60_000));
    }

    @Test
    void aSettledTransactionIsOneWhoseDecisionAllPartitionsKnow() throws IOException {
        node.hasTransaction("a", "PrepareCommit", "PrepareCommit", "CompleteCommit");
        assertTrue(transactions.settle(List.of("a", "unknown"), 60_000));
        assertEquals(3, node.asked(Api.DESCRIBE_TRANSACTIONS));
        // The markers stand, and that they do is not committed yet.
        node.hasTransaction("c", "PrepareCommit", "PrepareCommit" + ScriptedListener.MARKED);
        assertTrue(transactions.settle(List.of("c"), 60_000));
        assertEquals(5, node.asked(Api.DESCRIBE_TRANSACTIONS));
    }

    @Test
    void aTransactionThatIsNotSettledInTimeIsSaidToBeSo() throws IOException {
        node.hasTransaction("b", "PrepareCommit");
        assertFalse(transactions.settle(List.of("b"), SHORT_MS));
        // The node goes while it is waited for.
        node.next(Api.DESCRIBE_TRANSACTIONS, Step.served());
        for (int tries = 0; tries < 1000; tries++) {
            node.next(Api.DESCRIBE_TRANSACTIONS, Step.lostBefore());
        }
        assertFalse(transactions.settle(List.of("b"), SHORT_MS));
        QuorumUnavailableException told =
                assertThrows(QuorumUnavailableException.class, () -> transactions.settle(List.of("b"), 100));
        assertTrue(told.getMessage().contains("{" + node.servers() + "="), told.getMessage());
    }
}
