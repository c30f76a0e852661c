package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Which topic has a name now: the quorum is asked where an id is news, and a node that lags is not believed. */
@Tag("memory")
class TopicIdsTest {
    private final Asked keys = new Asked();
    private final TopicIds ids = new TopicIds(() -> keys);

    /** Keys, and what was asked of them. Pages have two keys. */
    private static final class Asked implements KeySpace {
        private final MemoryKeySpace space = new MemoryKeySpace();
        private final List<String> asked = new ArrayList<>();
        private boolean isAway;

        @Override
        public Optional<Entry> get(String key) throws IOException {
            note(key);
            return space.get(key);
        }

        @Override
        public Page list(ListRequest request) throws IOException {
            note(request.prefix());
            return space.list(request.limit(2));
        }

        private void note(String what) throws IOException {
            asked.add(what);
            if (isAway) {
                throw new QuorumUnavailableException("away");
            }
        }

        @Override
        public TxnResult commit(Txn txn, Witness witness) throws IOException {
            return space.commit(txn, witness);
        }

        @Override
        public String describe() {
            return "asked";
        }
    }

    private void create(String topic, String id) throws IOException {
        byte[] value = ("{\"id\": \"" + id + "\", \"partitions\": 1}").getBytes(StandardCharsets.UTF_8);
        keys.commit(new Txn().put("/raftlake/topics/" + topic, value), Witness.put("/raftlake/topics/" + topic, value));
    }

    @Test
    void theFirstIdIsThatOfTheQuorum() throws IOException {
        create("t", "new");
        assertNull(ids.get("t"));
        ids.hear(Map.of("t", "old"));
        assertEquals("new", ids.get("t"));
    }

    @Test
    void onlyAnIdThatIsNewsIsAskedFor() throws IOException {
        create("t", "new");
        create("u", "old");
        ids.hear(Map.of("t", "new"));
        ids.hear(Map.of("t", "new"));
        assertEquals(List.of("/raftlake/topics/t"), keys.asked);
        ids.hear(Map.of("t", "new", "u", "old"));
        assertEquals(List.of("/raftlake/topics/t", "/raftlake/topics/u"), keys.asked);
        ids.hear(Map.of("t", "old", "u", "old"));
        assertEquals("new", ids.get("t"), "the node lags");
        create("t", "third");
        ids.hear(Map.of("t", "third"));
        assertEquals("third", ids.get("t"), "created again");
    }

    @Test
    void aTopicThatIsBeingDeletedKeepsItsId() throws IOException {
        create("t", "new");
        ids.hear(Map.of("t", "new"));
        keys.commit(new Txn().delete("/raftlake/topics/t"), space -> false);
        ids.hear(Map.of("t", "old", "u", "old"));
        assertEquals("new", ids.get("t"));
        assertEquals("old", ids.get("u"), "a later one of the name is to be told from it");
        create("u", "new");
        ids.hear(Map.of("u", "new"));
        assertEquals("new", ids.get("u"));
    }

    @Test
    void manyTopicsAreLookedUpInOneList() throws IOException {
        for (int number = 1; number <= 20; number++) {
            create(String.format("t%02d", number), "new");
        }
        Map<String, String> told = new TreeMap<>();
        for (int number = 1; number <= TopicIds.SINGLE_MAX; number++) {
            told.put(String.format("t%02d", number), "old");
        }
        ids.hear(told);
        assertEquals(TopicIds.SINGLE_MAX, keys.asked.size());
        assertEquals("new", ids.get("t16"));
        keys.asked.clear();
        told.put("t17", "old");
        TopicIds many = new TopicIds(() -> keys);
        many.hear(told);
        assertEquals(10, keys.asked.size(), "pages of two");
        assertEquals("new", many.get("t17"));
        assertNull(many.get("t20"), "nobody has told of it");
    }

    @Test
    void aQuestionThatFailsLeavesWhatWasKnown() throws IOException {
        create("t", "new");
        ids.hear(Map.of("t", "new"));
        keys.isAway = true;
        assertThrows(QuorumUnavailableException.class, () -> ids.hear(Map.of("t", "old")));
        assertThrows(QuorumUnavailableException.class, () -> ids.hear(Map.of("u", "old")));
        assertEquals("new", ids.get("t"));
        assertNull(ids.get("u"));
        keys.isAway = false;
        ids.hear(Map.of("t", "old"));
        assertEquals("new", ids.get("t"));
    }

    @Test
    void nodesAreBelievedWhereAWrongIdIsAnError() throws IOException {
        TopicIds believing = new TopicIds(null);
        believing.hear(Map.of("t", "new"));
        believing.hear(Map.of("t", "old"));
        assertEquals("old", believing.get("t"));
    }
}
