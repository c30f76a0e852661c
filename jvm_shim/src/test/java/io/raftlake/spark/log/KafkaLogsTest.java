package io.raftlake.spark.log;

import static io.raftlake.spark.log.ScriptedListener.AT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.Logs.Fetched;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.ScriptedListener.Step;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** What the client makes of lost answers, errors and nodes that go: a scripted listener says so, and no clock is waited for. */
@Tag("memory")
class KafkaLogsTest {
    private static final int MIB = 1 << 20;

    /** Of calls whose time runs out: long enough for answers on a busy machine, and waited for. */
    private static final long SHORT_MS = 4_000;

    private ScriptedListener node;
    private KafkaLogs logs;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        logs = logs(60_000, node.address());
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
    }

    private static KafkaLogs logs(long timeoutMs, InetSocketAddress... servers) {
        return new KafkaLogs(new LogSettings(List.of(servers), timeoutMs, Codec.NONE));
    }

    private static LogRecord record(String value) {
        return LogRecord.of(null, value.getBytes(StandardCharsets.UTF_8));
    }

    private long append(String... values) throws IOException {
        return logs.append(AT, List.of(values).stream().map(KafkaLogsTest::record).toList());
    }

    private List<String> values() throws IOException {
        return logs.fetch(AT, 3, MIB, 0).records().stream()
                .map(each -> new String(each.record().value(), StandardCharsets.UTF_8))
                .toList();
    }

    private static long producerOf(byte[] batch) {
        return ByteBuffer.wrap(batch).getLong(Batches.PRODUCER_ID_AT);
    }

    private static int sequenceOf(byte[] batch) {
        return ByteBuffer.wrap(batch).getInt(Batches.BASE_SEQUENCE_AT);
    }

    @Test
    void appendsFollowOneAnotherInOneLane() throws IOException {
        assertEquals(3, append("a", "b"));
        assertEquals(5, append("c"));
        assertEquals(6, append("d"));
        assertEquals(List.of("a", "b", "c", "d"), values());
        assertEquals(List.of(0, 2, 3), node.batches().stream().map(KafkaLogsTest::sequenceOf).toList());
        assertEquals(1, node.asked(Api.INIT_PRODUCER_ID));
        assertEquals(1, node.asked(Api.METADATA));
        assertEquals(1, node.connections.size());
    }

    @Test
    void aLostAnswerIsAskedForAgainAndTheBatchStandsOnce() throws IOException {
        node.next(Api.PRODUCE, Step.lostAfter(), Step.lostBefore(), Step.lostAfter());
        assertEquals(3, append("a", "b"));
        assertEquals(5, append("c"));
        assertEquals(List.of("a", "b", "c"), values());
    }

    @Test
    void aBatchThatDidNotArriveIsSentAgain() throws IOException {
        node.next(Api.PRODUCE, Step.lostBefore());
        assertEquals(3, append("a"));
        assertEquals(List.of("a"), values());
    }

    @ParameterizedTest
    @EnumSource(names = {"NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR"})
    void anErrorThatPassesIsTriedAgain(Code code) throws IOException {
        node.next(Api.PRODUCE, Step.doubted(code), Step.refused(code));
        assertEquals(3, append("a"));
        assertEquals(List.of("a"), values());
        assertTrue(node.asked(Api.METADATA) >= 3, "the leader is looked for again");
    }

    @ParameterizedTest
    @EnumSource(names = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"})
    void aProducerIdThatIsNotKnownAnyMoreIsReplaced(Code code) throws IOException {
        append("a");
        node.next(Api.PRODUCE, Step.refused(code));
        append("b");
        assertEquals(List.of("a", "b"), values());
        assertNotEquals(producerOf(node.batches().get(0)), producerOf(node.batches().get(1)));
        assertEquals(0, sequenceOf(node.batches().get(1)));
        append("c");
        assertEquals(producerOf(node.batches().get(1)), producerOf(node.batches().get(2)), "the new one stays");
    }

    @Test
    void aNodeThatForgotTheProducersGetsTheBatchUnderANewOne() throws IOException {
        append("a");
        node.forgetProducers();
        append("b");
        assertEquals(List.of("a", "b"), values());
    }

    @ParameterizedTest
    @EnumSource(names = {"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "MESSAGE_TOO_LARGE", "INVALID_RECORD"})
    void whatMayStandInTheLogIsUnknownAfterAFinalError(Code code) throws IOException {
        append("a");
        node.next(Api.PRODUCE, Step.lostAfter(), Step.refused(code));
        UnknownOutcomeException unknown = assertThrows(UnknownOutcomeException.class, () -> append("b"));
        assertTrue(unknown.getMessage().contains("t-0") && unknown.getMessage().contains(code.name()), unknown.getMessage());
        append("c");
        assertEquals(List.of("a", "b", "c"), values(), "the next append takes another lane");
    }

    /** A leader that was replaced says so of what it has appended too. */
    @ParameterizedTest
    @EnumSource(names = {"NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"})
    void anErrorOfALeaderThatWentLeavesADoubt(Code code) throws IOException {
        append("a");
        node.next(Api.PRODUCE, Step.doubted(code), Step.refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER));
        assertThrows(UnknownOutcomeException.class, () -> append("b"));
        assertEquals(List.of("a", "b"), values());
    }

    @Test
    void whatCertainlyDidNotHappenIsNotUnknown() throws IOException {
        node.next(Api.PRODUCE, Step.refused(Code.NOT_ENOUGH_REPLICAS), Step.refused(Code.MESSAGE_TOO_LARGE));
        assertThrows(RefusedException.class, () -> append("a"));
    }

    @Test
    void aFinalErrorComesAtOnceAndItsSequenceIsUsedAgain() throws IOException {
        append("a");
        node.next(Api.PRODUCE, Step.refused(Code.MESSAGE_TOO_LARGE));
        RefusedException refused = assertThrows(RefusedException.class, () -> append("b", "c"));
        assertTrue(refused.getMessage().contains("t-0") && refused.getMessage().contains("MESSAGE_TOO_LARGE"), refused.getMessage());
        assertEquals(2, node.asked(Api.PRODUCE));
        append("d");
        assertEquals(1, sequenceOf(node.batches().get(1)));
        assertEquals(1, node.asked(Api.INIT_PRODUCER_ID));
    }

    @Test
    void anAppendWithoutAnAnswerEndsAsUnknownWhenTheTimeIsOver() {
        KafkaLogs hasty = logs(SHORT_MS, node.address());
        for (int tries = 0; tries < 1000; tries++) {
            node.next(Api.PRODUCE, Step.lostAfter());
        }
        assertThrows(UnknownOutcomeException.class, () -> hasty.append(AT, List.of(record("a"))));
        assertEquals(1, node.batches().size());
    }

    @Test
    void anAppendThatWasNotTakenIsUnavailableWhenTheTimeIsOver() {
        KafkaLogs hasty = logs(SHORT_MS, node.address());
        for (int tries = 0; tries < 1000; tries++) {
            node.next(Api.PRODUCE, Step.refused(Code.NOT_ENOUGH_REPLICAS));
        }
        QuorumUnavailableException told =
                assertThrows(QuorumUnavailableException.class, () -> hasty.append(AT, List.of(record("a"))));
        assertTrue(told.getMessage().contains("raftlake.request.timeout.ms"), told.getMessage());
        assertTrue(told.getMessage().contains("NOT_ENOUGH_REPLICAS"), told.getMessage());
    }

    @Test
    void aNodeThatIsNotThereIsNamed() throws IOException {
        InetSocketAddress nobody = node.address();
        node.close();
        KafkaLogs hasty = logs(100, nobody);
        for (org.junit.jupiter.api.function.Executable call : List.<org.junit.jupiter.api.function.Executable>of(
                () -> hasty.append(AT, List.of(record("a"))), () -> hasty.end(AT), () -> hasty.fetch(AT, 0, MIB, 0),
                () -> hasty.topic("t"), () -> hasty.ensureTopic("t", 1, Map.of()), () -> hasty.deleteTopic("t"))) {
            QuorumUnavailableException told = assertThrows(QuorumUnavailableException.class, call);
            assertTrue(told.getMessage().contains(":" + nobody.getPort()), told.getMessage());
        }
    }

    @Test
    void anotherNodeIsAskedWhereOneIsDown() throws IOException {
        ScriptedListener down = new ScriptedListener();
        InetSocketAddress nobody = down.address();
        down.close();
        logs = logs(60_000, nobody, node.address());
        assertEquals(3, append("a"));
    }

    /** A node that hangs, as a paused one does, takes a part of the time and not all of it. */
    @Test
    void anotherNodeIsAskedWhereOneHangs() throws IOException {
        try (ScriptedListener hanging = new ScriptedListener()) {
            for (int tries = 0; tries < 10; tries++) {
                hanging.next(Api.METADATA, Step.of(Step.What.SILENCE));
                hanging.next(Api.INIT_PRODUCER_ID, Step.of(Step.What.SILENCE));
            }
            logs = logs(5_000, hanging.address(), node.address());
            assertTrue(logs.topic("t").isPresent());
            logs = logs(5_000, hanging.address(), node.address());
            assertEquals(List.of("t"), logs.topics(""));
        }
    }

    @Test
    void aTopicThatIsMadeAgainGetsOtherProducers() throws IOException {
        append("a");
        node.next(Api.DELETE_TOPICS, Step.served());
        logs.deleteTopic("t");
        assertTrue(logs.topic("t").isEmpty());
        logs.ensureTopic("t", 1, Map.of());
        append("b");
        assertNotEquals(producerOf(node.batches().get(0)), producerOf(node.batches().get(1)));
        assertEquals(0, sequenceOf(node.batches().get(1)));
    }

    @ParameterizedTest
    @CsvSource({
        "485454502f312e312034303020, it speaks HTTP",
        "15030300020246, it speaks TLS",
        "53534800312e3020, it answered with a frame of 1397966848 bytes",
    })
    void aServerOfAnotherKindIsNamed(String hex, String what) throws IOException {
        try (ServerSocket other = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> {
                try {
                    while (true) {
                        Socket socket = other.accept();
                        socket.getOutputStream().write(HexFormat.of().parseHex(hex));
                    }
                } catch (IOException closed) {
                    // The test is over.
                }
            });
            thread.setDaemon(true);
            thread.start();
            KafkaLogs hasty = logs(SHORT_MS, InetSocketAddress.createUnresolved("127.0.0.1", other.getLocalPort()));
            IOException told = assertThrows(QuorumUnavailableException.class, () -> hasty.end(AT));
            assertTrue(told.getMessage().contains(what + ", and is no raftlake node's Kafka listener"), told.getMessage());
            assertEquals(what.endsWith("HTTP"), told.getMessage().contains("`listeners` of the nodes names, and not `http.listener`"));
        }
    }

    @ParameterizedTest
    @EnumSource(value = Step.What.class, names = {"OTHER_CORRELATION", "GARBAGE"})
    void anAnswerThatIsNoneIsNotBelieved(Step.What what) throws IOException {
        node.next(Api.PRODUCE, Step.of(what));
        node.next(Api.READ_OFFSET, Step.of(what));
        assertEquals(3, append("a"));
        assertEquals(4, logs.end(AT));
        assertEquals(List.of("a"), values());
        assertEquals(2, node.asked(Api.PRODUCE));
        assertEquals(2, node.asked(Api.READ_OFFSET));
    }

    /** The connection is closed behind an answer that did not come, so that a late one is taken for no other. */
    @Test
    void aConnectionWithoutAnAnswerIsNotUsedAgain() {
        KafkaLogs hasty = logs(SHORT_MS, node.address());
        node.next(Api.READ_OFFSET, Step.of(Step.What.SILENCE));
        assertThrows(QuorumUnavailableException.class, () -> hasty.end(AT));
        int before = node.connections.size();
        try {
            assertEquals(3, hasty.end(AT));
        } catch (IOException error) {
            throw new AssertionError(error);
        }
        assertEquals(before + 1, node.connections.size());
    }

    @Test
    void aConnectionThatTheNodeClosedMeanwhileIsReplaced() throws IOException {
        append("a");
        node.closeConnections();
        node.next(Api.PRODUCE, Step.refused(Code.MESSAGE_TOO_LARGE));
        // Nothing was sent on the closed one, or this would be unknown.
        assertThrows(RefusedException.class, () -> append("b"));
    }

    @Test
    void aTopicThatIsGoneIsRefusedAndNotTriedForEver() throws IOException {
        append("a");
        node.dropTopic();
        RefusedException refused = assertThrows(RefusedException.class, () -> append("b"));
        assertTrue(refused.getMessage().contains("there is no topic t"), refused.getMessage());
    }

    @Test
    void aNodeWithoutALeaderIsNotBelieved() throws IOException {
        node.next(Api.METADATA, Step.refused(Code.LEADER_NOT_AVAILABLE), Step.refused(Code.LEADER_NOT_AVAILABLE));
        assertTrue(logs.topic("t").isPresent());
        assertEquals(3, node.asked(Api.METADATA));
    }

    @Test
    void aReadIsTriedAgainUntilTheOffsetIsThere() throws IOException {
        append("a", "b");
        node.next(Api.FETCH, Step.refused(Code.OFFSET_NOT_AVAILABLE), Step.lostBefore(), Step.refused(Code.NOT_LEADER_OR_FOLLOWER));
        Fetched got = logs.fetch(AT, 4, MIB, 0);
        assertEquals(List.of(4L), got.records().stream().map(Logs.Numbered::offset).toList());
        assertEquals(new Fetched(got.records(), 5, 3, 5), got);
    }

    @Test
    void aReadWithoutRecordsBeforeTheEndIsTriedAgain() throws IOException {
        append("a", "b");
        for (long offset : List.of(3L, 4L)) {
            node.next(Api.FETCH, Step.withoutRecords(), Step.withoutRecords());
            assertEquals(offset, logs.fetch(AT, offset, MIB, 0).records().get(0).offset());
        }
        int asked = node.asked(Api.FETCH);
        assertEquals(List.of(), logs.fetch(AT, 5, MIB, 0).records());
        assertEquals(asked + 1, node.asked(Api.FETCH), "there is nothing to wait for at the end");
    }

    @Test
    void historyThatDoesNotComeInTimeIsTold() throws IOException {
        append("a");
        for (int number = 0; number < 100; number++) {
            node.next(Api.FETCH, Step.withoutRecords());
        }
        QuorumUnavailableException told =
                assertThrows(QuorumUnavailableException.class, () -> logs(100, node.address()).fetch(AT, 3, MIB, 0));
        assertTrue(told.getMessage().contains("a read of t-0 from offset 3"), told.getMessage());
        assertTrue(told.getMessage().contains("remote tier"), told.getMessage());
    }

    @Test
    void aReadOutsideOfTheLogSaysWhichEnd() throws IOException {
        append("a");
        node.next(Api.FETCH, Step.refused(Code.OFFSET_OUT_OF_RANGE));
        assertEquals(3, assertThrows(LogStartException.class, () -> logs.fetch(AT, 2, MIB, 0)).logStart());
        RefusedException behind = assertThrows(RefusedException.class, () -> logs.fetch(AT, 5, MIB, 0));
        assertTrue(behind.getMessage().contains("which is 4"), behind.getMessage());
    }

    @Test
    void aTopicThatSomebodyElseCreatedMeanwhileIsTaken() throws IOException {
        node.dropTopic();
        node.next(Api.CREATE_TOPICS, Step.doubted(Code.TOPIC_ALREADY_EXISTS));
        assertEquals("t", logs.ensureTopic("t", 1, Map.of()).name());
        node.dropTopic();
        node.next(Api.CREATE_TOPICS, Step.refused(Code.INVALID_CONFIG));
        RefusedException refused = assertThrows(RefusedException.class, () -> logs.ensureTopic("t", 1, Map.of()));
        assertTrue(refused.getMessage().contains("INVALID_CONFIG: scripted"), refused.getMessage());
    }

    @Test
    void aCreationWhoseAnswerWasLostIsFoundDone() throws IOException {
        node.dropTopic();
        node.next(Api.CREATE_TOPICS, Step.lostAfter(), Step.doubted(Code.TOPIC_ALREADY_EXISTS));
        assertEquals(1, logs.ensureTopic("t", 1, Map.of()).partitions());
    }

    @Test
    void whoCreatesATopicKnowsWhetherItIsTheirs() throws IOException {
        assertTrue(logs.createTopic("t", 1, Map.of()).isEmpty(), "it is there");
        assertEquals(0, node.asked(Api.CREATE_TOPICS));
        node.dropTopic();
        Logs.Topic made = new Logs.Topic("t", "AAAAAAAAAAAAAAAAAAAAAA", 1);
        assertEquals(Optional.of(new Logs.Created(made, true)), logs.createTopic("t", 1, Map.of()));
        node.dropTopic();
        node.createBefore();
        assertTrue(logs.createTopic("t", 1, Map.of()).isEmpty(), "somebody else was faster");
        node.dropTopic();
        node.loseCreation();
        assertEquals(Optional.of(new Logs.Created(made, false)), logs.createTopic("t", 1, Map.of()));
    }

    @Test
    void aTopicIsDeletedByItsId() throws IOException {
        Logs.Topic first = logs.topic("t").orElseThrow();
        node.recreateTopic();
        logs.deleteTopic(first);
        assertTrue(node.hasTopic());
        int asked = node.deletions();
        logs.deleteTopic(logs.topic("t").orElseThrow());
        assertEquals(asked + 1, node.deletions());
        assertTrue(logs.topic("t").isEmpty());
    }

    @Test
    void aTopicThatALaggingNodeDoesNotListIsDeletedByItsId() throws IOException {
        Logs.Topic made = logs.topic("t").orElseThrow();
        node.hideTopic(1);
        logs.deleteTopic(made);
        assertFalse(node.hasTopic());
        assertEquals(1, node.deletions());
    }

    /** The node that is asked does not know the topic yet, and the one that is looked at does not list it. */
    @Test
    void aDeletionThatALaggingNodeDoesNotKnowIsSentOnceMore() throws IOException {
        Logs.Topic made = logs.topic("t").orElseThrow();
        node.next(Api.DELETE_TOPICS, Step.refused(Code.UNKNOWN_TOPIC_ID));
        node.hideTopic(1);
        logs.deleteTopic(made);
        assertFalse(node.hasTopic());
        assertEquals(2, node.deletions());
        logs.deleteTopic(made);
        assertEquals(4, node.deletions(), "gone for good: twice, and no more");
    }

    /** The nodes delete the topic that there is now, also those that have an earlier one under the name. */
    @ParameterizedTest
    @CsvSource({"1, 0", "4, 0", "4, 1", "4, 2"})
    void anEarlierTopicAtALaggingNodeDoesNotHideTheLaterOneOfTheName(int unknown, int late) throws IOException {
        try (ScriptedListener lagging = new ScriptedListener(); ScriptedListener other = new ScriptedListener()) {
            ScriptedListener.join(lagging, other);
            other.recreateTopic();
            for (int number = 0; number < unknown; number++) {
                lagging.next(Api.DELETE_TOPICS, Step.refused(Code.UNKNOWN_TOPIC_ID));
            }
            for (int number = 0; number < late; number++) {
                other.next(Api.DELETE_TOPICS, Step.refused(Code.UNKNOWN_TOPIC_ID));
            }
            new KafkaLogs(new LogSettings(List.of(lagging.address()), 10_000, Codec.NONE)).deleteTopic("t");
            assertFalse(other.hasTopic());
        }
    }

    /** The calling thread goes on; another client acts once that has happened. */
    private static Thread when(BooleanSupplier happened, Runnable then) {
        Thread thread = new Thread(() -> {
            while (!happened.getAsBoolean()) {
                Thread.onSpinWait();
            }
            then.run();
        });
        thread.start();
        return thread;
    }

    @Test
    void aDeletionWhoseAnswerIsLostDeletesNoTopicThatIsMadeBehindIt() throws Exception {
        node.next(Api.DELETE_TOPICS, Step.lostAfter());
        Thread other = when(() -> !node.hasTopic(), node::recreateTopic);
        logs.deleteTopic("t");
        other.join();
        assertTrue(node.hasTopic(), node.deletions() + " deletions");
    }

    /** A follower still lists the topic that is deleted. */
    @Test
    void aDeletionThatIsConfirmedDeletesNoTopicThatIsMadeBehindIt() throws Exception {
        try (ScriptedListener leader = new ScriptedListener(); ScriptedListener lagging = new ScriptedListener()) {
            ScriptedListener.join(leader, lagging);
            Thread other = when(() -> leader.deletions() == 2, () -> {
                leader.recreateTopic();
                lagging.recreateTopic();
            });
            new KafkaLogs(new LogSettings(List.of(leader.address()), 10_000, Codec.NONE)).deleteTopic("t");
            other.join();
            assertTrue(leader.hasTopic() && lagging.hasTopic(), leader.deletions() + " and " + lagging.deletions() + " deletions");
        }
    }

    @Test
    void anotherNodeIsAskedForTheDeletionThatOneDoesNotKnow() throws IOException {
        try (ScriptedListener lagging = new ScriptedListener()) {
            Logs.Topic made = logs.topic("t").orElseThrow();
            lagging.dropTopic();
            ScriptedListener.join(lagging, node);
            logs = logs(60_000, lagging.address());
            logs.deleteTopic(made);
            assertFalse(node.hasTopic());
            assertEquals(List.of(1, 1), List.of(lagging.deletions(), node.deletions()));
        }
    }

    @Test
    void anInterruptedCallEnds() throws Exception {
        append("a");
        node.next(Api.READ_OFFSET, Step.of(Step.What.SILENCE));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedIOException.class, () -> logs.end(AT));
        assertTrue(Thread.interrupted(), "whoever called sees it too");
        assertEquals(4, logs.end(AT));
    }
}
