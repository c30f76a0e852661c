package io.raftlake.spark.state;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.Fence;
import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.junit.jupiter.api.Test;

/** Which topic and partition a store has, and who makes them. */
class StateTopicsTest {
    private final Path root = new Path("raftlake://" + Spaces.newPipeline() + "/a/main");

    private StateTopics topics(String query) {
        return topics(query, Fence.NONE);
    }

    private StateTopics topics(String query, Fence fence) {
        return new StateTopics(Spaces.SPACE, Spaces.LOGS, new Checkpoint(root, query, fence));
    }

    private StateStoreId store(long operator, int partition, String name) {
        return new StateStoreId(root + "/state", operator, partition, name);
    }

    @Test
    void namesAreThoseOfTheStore() throws IOException {
        assertEquals("/fs-state/p/a/b%25", StateTopics.key(new Path("raftlake://p/a/b%")));
        String id = "0123456789abcdef0123456789abcdef";
        assertEquals("__raftlake-state-" + id + "-2-default", StateTopics.topic(id, store(2, 7, "default")));
        assertEquals("__raftlake-state-" + id + "-0-a_b-c.002ed.0020", StateTopics.topic(id, store(0, 0, "a_b-c.d ")));
    }

    @Test
    void aStoreGetsAPartitionWithItsNumber() throws IOException {
        StateTopics topics = topics("q");
        assertEquals(Optional.empty(), topics.find(store(0, 1, "default")));
        Partition first = topics.ensure(store(0, 1, "default"), 4);
        assertEquals(1, first.partition());
        assertEquals(4, Spaces.LOGS.topic(first.topic()).orElseThrow().partitions());
        assertEquals(Optional.of(first), topics.find(store(0, 1, "default")));
        assertEquals(Optional.empty(), topics.find(store(0, 4, "default")), "there is no such partition yet");
        Partition more = topics.ensure(store(0, 4, "default"), 0);
        assertEquals(new Partition(first.topic(), 4), more);
        assertEquals(5, Spaces.LOGS.topic(first.topic()).orElseThrow().partitions());
        assertNotEquals(first.topic(), topics.ensure(store(0, 1, "other"), 4).topic());
        assertNotEquals(first.topic(), topics.ensure(store(1, 1, "default"), 4).topic());
    }

    @Test
    void itIsTheSameForEachRunAndAnotherForAnotherQuery() throws IOException {
        Partition first = topics("q").ensure(store(0, 0, "default"), 1);
        assertEquals(first, topics("q").ensure(store(0, 0, "default"), 1));
        assertEquals(Optional.empty(), topics("q2").find(store(0, 0, "default")), "the checkpoint was made anew");
        Partition second = topics("q2").ensure(store(0, 0, "default"), 1);
        assertNotEquals(first.topic(), second.topic());
        assertEquals(Optional.empty(), topics("q").find(store(0, 0, "default")));
    }

    @Test
    void ofManyWhoMakeItAllGetTheSame() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try {
            List<Callable<Partition>> tries = new ArrayList<>();
            for (int partition = 0; partition < 16; partition++) {
                StateStoreId store = store(0, partition, "default");
                tries.add(() -> topics("q").ensure(store, 0));
            }
            List<Partition> found = new ArrayList<>();
            for (Future<Partition> one : threads.invokeAll(tries)) {
                found.add(one.get());
            }
            assertEquals(1, new HashSet<>(found.stream().map(Partition::topic).toList()).size());
            assertEquals(16, new HashSet<>(found).size());
            assertEquals(16, Spaces.LOGS.topic(found.get(0).topic()).orElseThrow().partitions());
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aFencedRunMakesNone() throws IOException {
        Fence fenced = new Fence() {
            @Override
            public void addTo(Txn txn) {
                txn.compare("/fs-owner/" + root.toUri().getAuthority(), 1);
            }

            @Override
            public void explain(TxnResult refused) throws IOException {
                assertTrue(refused.inTheWay().contains("/fs-owner/" + root.toUri().getAuthority()));
                throw new PathIOException(root.toString(), "fenced");
            }

            @Override
            public void confirm() {}

            @Override
            public void confirmNowAndThen() {}
        };
        assertThrows(PathIOException.class, () -> topics("q", fenced).ensure(store(0, 0, "default"), 1));
        assertFalse(Spaces.SPACE.get(StateTopics.key(root)).isPresent());
    }
}
