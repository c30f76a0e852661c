package io.raftlake.spark.log;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a client learns of topics from nodes of which one lags. */
@Tag("memory")
@Timeout(60)
class ClusterTest {
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
