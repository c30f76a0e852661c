package io.raftlake.spark.connector;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** A partition of a topic; ordered by topic, then by number. */
public record TopicPartition(String topic, int partition) implements Comparable<TopicPartition>, Serializable {
    private static final Comparator<TopicPartition> ORDER =
            Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition);

    /** So begin the topics that raftlake keeps for itself: changes of state, large files of checkpoints. */
    private static final String OWN = "__raftlake-";

    @Override
    public int compareTo(TopicPartition other) {
        return ORDER.compare(this, other);
    }

    @Override
    public String toString() {
        return topic + "-" + partition;
    }

    /** Whether raftlake keeps the topic for itself; or, of an expression, whether it names only such topics. */
    public static boolean isOwn(String topic) {
        return topic.startsWith(OWN);
    }

    /** The topics of some partitions, sorted. */
    public static List<String> topicsOf(Collection<TopicPartition> partitions) {
        return List.copyOf(new TreeSet<>(partitions.stream().map(TopicPartition::topic).toList()));
    }

    /** Numbers of partitions by topic, both sorted. */
    public static Map<String, List<Integer>> byTopic(Collection<TopicPartition> partitions) {
        Map<String, List<Integer>> grouped = new TreeMap<>();
        for (TopicPartition each : new TreeSet<>(partitions)) {
            grouped.computeIfAbsent(each.topic(), absent -> new ArrayList<>()).add(each.partition());
        }
        return grouped;
    }
}
