package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.OtherTopicException;
import io.raftlake.spark.log.ScriptedListener;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The ids of topics, as a node at a Kafka listener tells them, and as the quorum has them behind its HTTP listeners. */
@Tag("memory")
@Timeout(60)
class LogViewTest {
    private static final String KEY = "/raftlake/topics/t";

    /** The ids of the listener's first topic, and of the one that is created again. */
    private static final String FIRST = "AAAAAAAAAAAAAAAAAAAAAA";
    private static final String SECOND = "AAAAAAAAAAAAAAAAAAAAAQ";

    private final MemoryKeySpace keys = new MemoryKeySpace();
    private ScriptedNode front;
    private static final TopicPartition T0 = new TopicPartition("t", 0);
    private static final Set<TopicPartition> ALL = Set.of(T0);
    private static final Map<String, String> SELECTIONS =
            Map.of("subscribe", "t", "subscribePattern", "t.*", "assign", "{\"t\":[0]}");

    private ScriptedListener node;

    /** Another node: where there is one, the first one lags behind it. */
    private ScriptedListener fresh;

    @BeforeEach
    void start() throws IOException {
        front = new ScriptedNode(keys);
        node = new ScriptedListener();
        node.config("http.listener", front.front());
        fresh = new ScriptedListener();
        fresh.config("http.listener", front.front());
    }

    /** The topic is created again. The first node does not hear of it. The new topic begins and ends at 9, the old one at 3. */
    private void recreateBehindTheFirst() throws IOException {
        ScriptedListener.join(node, fresh);
        fresh.recreateTopic();
        fresh.lead();
        fresh.beginAt(9);
        create(SECOND);
    }

    private static void assertRefused(Supplier<?> question) {
        assertInstanceOf(OtherTopicException.class, assertThrows(UncheckedIOException.class, question::get).getCause());
    }

    @AfterEach
    void stop() throws IOException {
        fresh.close();
        node.close();
        front.close();
    }

    private void create(String id) throws IOException {
        byte[] value = ("{\"id\": \"" + id + "\"}").getBytes(StandardCharsets.UTF_8);
        keys.commit(new Txn().put(KEY, value), Witness.put(KEY, value));
    }

    private SourceOptions options(String option, String value, String... more) {
        Map<String, String> raw = new HashMap<>(Map.of(
                "kafka.bootstrap.servers", node.servers(), option, value, "fetchOffset.retryIntervalMs", "1"));
        for (int index = 0; index < more.length; index += 2) {
            raw.put(more[index], more[index + 1]);
        }
        return SourceOptions.of(raw);
    }

    private LogView view(boolean checksIds, String option, String value, String... more) {
        SourceOptions options = options(option, value, more);
        LogReads client = RaftlakeScanBuilder.client(options.quorum());
        TopicIds ids = new TopicIds(checksIds ? () -> Sources.keys(client, options.quorum(), 10_000) : null);
        return new LogView(client, options, ids);
    }

    @Test
    void theIdOfATopicIsThatOfTheQuorumWhateverANodeTells() throws IOException {
        recreateBehindTheFirst();
        fresh.growTo(2);
        SELECTIONS.forEach((option, value) -> {
            LogView view = view(true, option, value);
            assertEquals(option.equals("assign") ? 1 : 2, view.look().size(), option);
            assertEquals(Map.of("t", SECOND), view.topicIds(), option);
        });
    }

    @Test
    void aNodeIsBelievedWhereAWrongIdIsAnError() {
        LogView believing = view(false, "subscribe", "t");
        believing.look();
        assertEquals(Map.of("t", FIRST), believing.topicIds());
    }

    @Test
    void theQuorumIsAskedAgainWhereAnIdIsNews() throws IOException {
        create(FIRST);
        LogView view = view(true, "subscribe", "t");
        view.look();
        view.look();
        assertEquals(1, front.requests.size(), "no request more with each look");
        node.recreateTopic();
        create(SECOND);
        view.look();
        assertEquals(Map.of("t", SECOND), view.topicIds());
        assertEquals(2, front.requests.size());
    }

    @Test
    void aTopicThatIsLookedForAloneIsAskedForToo() throws IOException {
        node.recreateTopic();
        create(SECOND);
        LogView view = view(true, "subscribePattern", "another");
        view.look();
        assertEquals(Map.of(), view.topicIds(), "the query does not read it");
        assertEquals(List.of(), front.requests);
        view.lookFor(List.of("t"));
        assertEquals(Map.of("t", SECOND), view.topicIds());
    }

    @Test
    void theQuestionWaitsForTheQuorum() throws IOException {
        node.recreateTopic();
        create(SECOND);
        front.nextReads(ScriptedNode.Step.refused(503), ScriptedNode.Step.lostBefore());
        LogView view = view(true, "subscribe", "t");
        view.look();
        assertEquals(Map.of("t", SECOND), view.topicIds());
    }

    // --- offsets -----------------------------------------------------------------------------------------------------

    @Test
    void offsetsAreThoseOfTheNewTopicBehindANodeThatLeadsTheOldOne() throws IOException {
        recreateBehindTheFirst();
        SELECTIONS.forEach((option, value) -> {
            LogView view = view(true, option, value);
            assertEquals(ALL, view.requireSelected());
            // The listener tells the last offset.
            assertEquals(Map.of(T0, 8L), view.earliest(ALL), option);
            assertEquals(Map.of(T0, 8L), view.latest(ALL), option);
            assertEquals(Map.of(T0, 9L), view.provenLatest(ALL), option);
            assertEquals(ALL, view.present(ALL), option);
        });
        for (String transactions : List.of("read_committed", "read_uncommitted")) {
            LogView view = view(true, "subscribe", "t", "consistency", "linearizable", "kafka.isolation.level", transactions);
            view.look();
            assertEquals(Map.of(T0, 9L), view.latest(ALL), transactions);
        }
    }

    @Test
    void nothingIsToldOfATopicWhileAllNodesNameTheOldOne() throws IOException {
        create(SECOND);
        SELECTIONS.forEach((option, value) -> {
            LogView view = view(true, option, value);
            assertRefused(view::requireSelected);
            assertEquals(Map.of(), view.topicIds(), option);
            assertEquals(List.of(), view.replicas(T0), option);
            assertEquals(ALL, view.present(ALL), "it may be there: " + option);
        });
        LogView view = view(true, "subscribe", "t");
        assertEquals(Set.of(), view.look());
        assertEquals(Map.of(), view.latest(ALL));
        node.recreateTopic();
        assertEquals(ALL, view.requireSelected());
        assertEquals(Map.of(T0, 2L), view.latest(ALL));
    }

    @Test
    void aStartWhoseOffsetsNobodyTellsIsRefused() throws IOException {
        create(FIRST);
        SourceOptions options = options("subscribe", "t", "startingOffsets", "earliest");
        LogView view = view(true, "subscribe", "t");
        view.look();
        node.recreateTopic();
        RaftlakeScanBuilder.client(options.quorum()).topics(List.of("t"));
        assertEquals(ALL, view.present(ALL), "the next look tells of the new one");
        assertEquals(Map.of(), view.earliest(ALL), "of the topic that was looked at");
        assertEquals(ALL, view.present(ALL));
        assertRefused(() -> {
            view.requireTold(List.of("t"));
            return null;
        });
        create(SECOND);
        assertEquals(Map.of(T0, 2L), new Positions(view, options).start().offsets());
        node.dropTopic();
        RaftlakeScanBuilder.client(options.quorum()).topics(List.of("t"));
        assertEquals(Set.of(), view.present(ALL));
    }

    @Test
    void aTableOfTheOldTopicIsNotTakenForNone() throws IOException {
        create(SECOND);
        node.recreateTopic();
        node.config("remote.storage.enable", "true");
        node.config("raftlake.tier.table.uri", "/tier/t-" + FIRST);
        SourceOptions options = options("subscribe", "t", "tier", "remote", "kafka.default.api.timeout.ms", "2000");
        LogReads client = RaftlakeScanBuilder.client(options.quorum());
        Tables tables = new Tables(client, options, new Configuration(false), () -> 0);
        TopicIds ids = new TopicIds(() -> Sources.keys(client, options.quorum(), 10_000));
        LogView view = new HistoryView(client, options, ids, tables);
        view.look();
        assertEquals(Map.of(), view.latest(ALL));
        assertEquals(ALL, view.present(ALL));
        assertRefused(() -> tables.shown(List.of(new OffsetRange(T0, 0, 3)), Map.of("t", SECOND)));
        assertRefused(() -> new Positions(view, options).start());
        node.hideConfigs(1_000);
        assertEquals(Map.of(), tables.shown(List.of(new OffsetRange(T0, 0, 3)), Map.of("t", SECOND)), "it is gone");
    }
}
