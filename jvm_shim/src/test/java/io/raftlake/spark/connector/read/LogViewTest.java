package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.kit.ScriptedNode;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.ScriptedListener;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
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

    private void create(String id) throws IOException {
        byte[] value = ("{\"id\": \"" + id + "\"}").getBytes(StandardCharsets.UTF_8);
        keys.commit(new Txn().put(KEY, value), Witness.put(KEY, value));
    }

    private LogView view(boolean checksIds, String option, String value) {
        SourceOptions options = SourceOptions.of(Map.of(
                "kafka.bootstrap.servers", node.servers(), option, value, "fetchOffset.retryIntervalMs", "1"));
        LogReads client = RaftlakeScanBuilder.client(options.quorum());
        TopicIds ids = new TopicIds(checksIds ? () -> Sources.keys(client, options.quorum(), 10_000) : null);
        return new LogView(client, options, ids);
    }

    @Test
    void theIdOfATopicIsThatOfTheQuorumWhateverANodeTells() throws IOException {
        create(SECOND);
        Map<String, String> selections = Map.of("subscribe", "t", "subscribePattern", "t.*", "assign", "{\"t\":[0]}");
        selections.forEach((option, value) -> {
            LogView view = view(true, option, value);
            view.look();
            assertEquals(Map.of("t", SECOND), view.topicIds(), option);
        });
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
        create(SECOND);
        front.nextReads(ScriptedNode.Step.refused(503), ScriptedNode.Step.lostBefore());
        LogView view = view(true, "subscribe", "t");
        view.look();
        assertEquals(Map.of("t", SECOND), view.topicIds());
    }
}
