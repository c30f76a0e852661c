package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.kit.MemoryKeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;

/** A streaming query over logs in memory: what its planner is asked, in the order in which Spark asks. */
abstract class PlannerKit {
    final Map<String, String> raw = new HashMap<>(Map.of("kafka.bootstrap.servers", "h:1", "subscribe", "t"));
    final FakeView view = new FakeView();
    long nowMs = 5_000;
    StreamPlanner planner;

    /** Logs of topic t: where partitions begin and end, and at what time the records from an offset on were appended. */
    static final class FakeView extends LogView {
        final TreeMap<TopicPartition, Long> starts = new TreeMap<>();
        final TreeMap<TopicPartition, Long> ends = new TreeMap<>();
        final TreeMap<TopicPartition, Long> proven = new TreeMap<>();
        /** What happens once behind the next question where logs begin. */
        Runnable behindStarts = () -> {};

        /** Whether a node that lags knows no topic yet. */
        boolean isUnlisted;

        /** What a node that lags does not tell of at a look. */
        final TreeSet<TopicPartition> untold = new TreeSet<>();
        final List<String> lookedFor = new ArrayList<>();

        /** Partitions of which nobody tells where they begin: all nodes know another topic of the name. */
        final TreeSet<TopicPartition> unstarted = new TreeSet<>();

        /** The id of the topic, as a node tells it. */
        String id;

        private final MemoryKeySpace keys = new MemoryKeySpace();
        private TopicIds ids;
        long youngFrom = -1;
        int looks;
        int asked;

        FakeView() {
            super(null, null, null);
            create("id-1");
            forget();
        }

        /** A topic with this id has the name from now on, as the quorum's key and all nodes say. */
        void create(String made) {
            byte[] value = ("{\"id\": \"" + made + "\"}").getBytes(StandardCharsets.UTF_8);
            try {
                keys.commit(new Txn().put(TopicIds.PREFIX + "t", value), Witness.put(TopicIds.PREFIX + "t", value));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            id = made;
        }

        /** As that of a new run. */
        void forget() {
            ids = new TopicIds(() -> keys);
        }

        private void hear() {
            try {
                ids.hear(ends.isEmpty() ? Map.of() : Map.of("t", id));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        void log(int number, long start, long end) {
            starts.put(new TopicPartition("t", number), start);
            ends.put(new TopicPartition("t", number), end);
        }

        @Override
        SortedSet<TopicPartition> look() {
            looks++;
            if (!isUnlisted) {
                hear();
            }
            SortedSet<TopicPartition> told = new TreeSet<>(ends.keySet());
            told.removeAll(untold);
            return told;
        }

        @Override
        void lookFor(Collection<String> names) {
            lookedFor.addAll(names);
            hear();
        }

        @Override
        SortedSet<TopicPartition> present(Collection<TopicPartition> partitions) {
            SortedSet<TopicPartition> there = new TreeSet<>(ends.keySet());
            there.retainAll(partitions);
            return there;
        }

        @Override
        void requireTold(Collection<String> names) {
            if (unstarted.stream().anyMatch(each -> names.contains(each.topic()))) {
                throw new IllegalStateException("nobody tells");
            }
        }

        @Override
        SortedSet<TopicPartition> requireSelected() {
            return look();
        }

        @Override
        void requireExisting(String option, Collection<TopicPartition> partitions) {
            assertTrue(ends.keySet().containsAll(partitions), option);
        }

        @Override
        Map<String, String> topicIds() {
            return ends.isEmpty() || ids.get("t") == null ? Map.of() : Map.of("t", ids.get("t"));
        }

        @Override
        List<Integer> replicas(TopicPartition at) {
            return List.of(1, 2, 3);
        }

        @Override
        SortedMap<TopicPartition, Long> earliest(Collection<TopicPartition> partitions) {
            SortedMap<TopicPartition, Long> found = of(starts, partitions);
            found.keySet().removeAll(unstarted);
            Runnable now = behindStarts;
            behindStarts = () -> {};
            now.run();
            return found;
        }

        @Override
        SortedMap<TopicPartition, Long> latest(Collection<TopicPartition> partitions) {
            asked++;
            return of(ends, partitions);
        }

        @Override
        SortedMap<TopicPartition, Long> provenLatest(Collection<TopicPartition> partitions) {
            SortedMap<TopicPartition, Long> found = of(ends, partitions);
            found.putAll(of(proven, partitions));
            return found;
        }

        @Override
        SortedMap<TopicPartition, Long> atTimestamps(SortedMap<TopicPartition, Long> timesMs) {
            SortedMap<TopicPartition, Long> found = new TreeMap<>(timesMs);
            found.replaceAll((partition, time) -> youngFrom);
            return found;
        }

        private static SortedMap<TopicPartition, Long> of(Map<TopicPartition, Long> all, Collection<TopicPartition> asked) {
            SortedMap<TopicPartition, Long> found = new TreeMap<>(all);
            found.keySet().retainAll(asked);
            return found;
        }
    }

    private static final class NoTables extends Tables {
        private NoTables(SourceOptions options) {
            super(null, options, new Configuration(false), null);
        }

        @Override
        Map<TopicPartition, Span> shown(List<OffsetRange> ranges, Map<String, String> topicIds) {
            return Map.of();
        }
    }

    StreamPlanner plan(String... pairs) {
        for (int index = 0; index < pairs.length; index += 2) {
            raw.put(pairs[index], pairs[index + 1]);
        }
        SourceOptions options = SourceOptions.of(raw).forStream();
        view.forget();
        planner = new StreamPlanner(view, options, tasks(options), () -> nowMs);
        return planner;
    }

    Planner tasks(SourceOptions options) {
        return new Planner(view, options, new NoTables(options), null);
    }

    static SortedMap<TopicPartition, Long> at(long... offsets) {
        SortedMap<TopicPartition, Long> map = new TreeMap<>();
        for (int number = 0; number < offsets.length; number++) {
            map.put(new TopicPartition("t", number), offsets[number]);
        }
        return map;
    }

    SortedMap<TopicPartition, Long> end(SortedMap<TopicPartition, Long> start) {
        return planner.planEnd(start, planner.defaultLimit());
    }

    List<String> ranges(SortedMap<TopicPartition, Long> start, SortedMap<TopicPartition, Long> end) {
        return planner.planTasks(start, end).stream().map(task -> task.range().toString()).toList();
    }

    String lost(Runnable planning) {
        return assertThrows(DataLoss.class, planning::run).getMessage();
    }

    List<String> realTime(SortedMap<TopicPartition, Long> start) {
        end(start);
        return planner.planRealTime(start).stream().map(task -> task.range().toString()).toList();
    }
}
