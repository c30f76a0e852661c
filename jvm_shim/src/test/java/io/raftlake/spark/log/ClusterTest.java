package io.raftlake.spark.log;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a client learns of topics from nodes of which one lags. */
@Tag("memory")
@Timeout(60)
class ClusterTest {
    private static final String FIRST = "AAAAAAAAAAAAAAAAAAAAAA";
    private static final String SECOND = "AAAAAAAAAAAAAAAAAAAAAQ";

    /** Both lead: the one that lags leads the old topic still. The new one begins and ends at 9. */
    private static void recreate(ScriptedListener lagging, ScriptedListener other) {
        ScriptedListener.join(lagging, other);
        other.recreateTopic();
        other.lead();
        other.beginAt(9);
    }

    @Test
    void theOffsetsOfATopicAreThoseOfTheIdThatIsAskedFor() throws IOException {
        try (ScriptedListener lagging = new ScriptedListener(); ScriptedListener other = new ScriptedListener()) {
            recreate(lagging, other);
            LogReads reads = LogReads.of(List.of(lagging.address()), 10_000, 0);
            for (int repetition = 0; repetition < 2; repetition++) {
                reads.topics(List.of("t"));
                // The last offset, which the listener tells.
                Map<Integer, Long> latest = Map.of(0, LogReads.LATEST);
                assertEquals(Map.of(0, 8L), reads.listOffsets("t", SECOND, latest, true));
                assertEquals(Map.of(0, 9L), reads.readOffset("t", SECOND, List.of(0)));
                assertEquals(Map.of(0, 9L), reads.readStableOffset("t", SECOND, List.of(0)));
                assertEquals(SECOND, reads.topic("t", SECOND).id());
                assertEquals(Map.of(0, 2L), reads.listOffsets("t", FIRST, latest, true));
                assertEquals(Map.of(0, 3L), reads.readOffset("t", FIRST, List.of(0)));
            }
        }
    }

    @Test
    void anIdThatNoNodeNamesInTimeIsToldFromATopicThatIsGone() throws IOException {
        try (ScriptedListener node = new ScriptedListener()) {
            LogReads reads = LogReads.of(List.of(node.address()), 10_000, 0);
            assertThrows(OtherTopicException.class, () -> reads.listOffsets("t", SECOND, Map.of(0, LogReads.LATEST), true));
            assertThrows(OtherTopicException.class, () -> reads.readOffset("t", SECOND, List.of(0)));
            assertThrows(OtherTopicException.class, () -> reads.topic("t", SECOND));
            assertEquals(Map.of(0, 3L), reads.readOffset("t", null, List.of(0)));
            node.dropTopic();
            UnknownTopicException gone = assertThrows(UnknownTopicException.class, () -> reads.topic("t", FIRST));
            assertEquals(UnknownTopicException.class, gone.getClass());
        }
    }

    @Test
    void aRangeOfTheNewTopicIsNotLostAtANodeThatLags() throws IOException {
        try (ScriptedListener lagging = new ScriptedListener(); ScriptedListener other = new ScriptedListener()) {
            recreate(lagging, other);
            LogReads reads = LogReads.of(List.of(lagging.address()), 10_000, 0);
            reads.topics(List.of("t"));
            RangeFetches fetches = new RangeFetches(reads, new Partition("t", 0), SECOND, true);
            assertEquals(0, fetches.fetch(9, 1_000, 0, RangeFetches.LEADER).data().remaining());
            other.recreateTopic();
            assertThrows(OtherTopicException.class, () -> fetches.fetch(9, 1_000, 0, RangeFetches.LEADER));
        }
    }

    /** The name that was given leads to wherever the nodes are: that of a service, or of a load balancer. */
    @Test
    void aQuorumWhoseNodesHaveAllMovedIsFoundAtTheNameThatWasGiven() throws IOException {
        ScriptedListener before = new ScriptedListener();
        try (ScriptedListener name = new ScriptedListener(); ScriptedListener after = new ScriptedListener()) {
            name.leadTo(before);
            LogReads reads = LogReads.of(List.of(name.address()), 10_000, 0);
            assertEquals(Map.of(0, 3L), reads.readOffset("t", null, List.of(0)));
            name.leadTo(after);
            before.close();
            for (int repetition = 0; repetition < 2; repetition++) {
                assertEquals(Map.of(0, 3L), reads.readOffset("t", null, List.of(0)));
            }
        }
    }

    @Test
    void aNameThatLeadsNowhereDoesNotDelayTheWordThatATopicIsAbsent() throws IOException {
        ScriptedListener gone = new ScriptedListener();
        gone.close();
        try (ScriptedListener node = new ScriptedListener()) {
            node.dropTopic();
            LogReads reads = LogReads.of(List.of(node.address(), gone.address()), 10_000, 0);
            for (int repetition = 0; repetition < 3; repetition++) {
                int before = node.asked(Api.METADATA);
                assertEquals(Optional.empty(), reads.cluster().topic("t", reads.tries("a look")));
                assertEquals(1, node.asked(Api.METADATA) - before, "the only node has said it once");
            }
        }
    }

    @Test
    void aPartitionThatOneNodeDoesNotKnowYetIsAskedOfAnother() throws IOException {
        try (ScriptedListener lagging = new ScriptedListener(); ScriptedListener other = new ScriptedListener()) {
            ScriptedListener.join(lagging, other);
            other.growTo(2);
            LogReads reads = LogReads.of(List.of(lagging.address()), 10_000, 0);
            assertEquals(1, reads.topics(List.of("t")).get(0).partitions());
            assertEquals(lagging.address().getPort(),
                    reads.cluster().leader(new Partition("t", 1), reads.tries("a look")).getPort());
            assertThrows(UnknownTopicException.class,
                    () -> reads.cluster().leader(new Partition("t", 2), reads.tries("a look")), "no node has that");
        }
    }
}
