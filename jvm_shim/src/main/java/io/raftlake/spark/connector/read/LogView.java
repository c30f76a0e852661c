package io.raftlake.spark.connector.read;

import static java.util.stream.Collectors.toMap;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.Selection;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.LogReads.TopicInfo;
import io.raftlake.spark.log.OtherTopicException;
import io.raftlake.spark.log.UnknownTopicException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * What the quorum says about the topics of one query: which partitions there are, where they begin and where they end. An end
 * that this returns is committed. Each question is asked anew, and waits for the quorum as the options say.
 */
class LogView {
    private final LogReads client;
    private final SourceOptions options;
    private final TopicIds ids;

    /** Those that the query names, or all of the quorum for a pattern; as of the last look. */
    private final Map<String, TopicInfo> topics = new TreeMap<>();

    /**
     * Since the last look: topics of which nodes know another one of the name alone. That one may be older or newer. So nothing
     * is told of such a topic, neither offsets nor that it is gone.
     */
    private final Map<String, OtherTopicException> untold = new TreeMap<>();

    LogView(LogReads client, SourceOptions options, TopicIds ids) {
        this.client = client;
        this.options = options;
        this.ids = ids;
    }

    private <T> T ask(String what, Asking.Question<T> question) {
        return Asking.patiently(options.quorum().patience(), what, question);
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    /** The partitions that the query reads now. What it names and what does not exist is left out. */
    SortedSet<TopicPartition> look() {
        untold.clear();
        Selection selection = options.selection();
        if (selection instanceof Selection.Subscribe subscribe) {
            lookAt(subscribe.topics());
        } else if (selection instanceof Selection.Assign assign) {
            lookAt(TopicPartition.topicsOf(assign.partitions()));
        } else {
            known(ask("topics", () -> client.topics(null)));
            hearIds(TopicPartition.topicsOf(partitionsOf(topics.keySet(), selection)));
        }
        return partitionsOf(topics.keySet(), selection);
    }

    private void known(Collection<TopicInfo> found) {
        topics.clear();
        found.forEach(topic -> topics.put(topic.name(), topic));
    }

    /** Topics reach the nodes one after another: one that a node does not know may exist. */
    private void lookAt(List<String> names) {
        known(ask("topics", () -> client.topics(names)));
        lookFor(names);
    }

    /** Asks for topics, each alone, that the last look did not find. */
    void lookFor(Collection<String> names) {
        for (String name : names) {
            if (!topics.containsKey(name)) {
                Optional<TopicInfo> found = ask("describe topic", () -> client.topic(name));
                found.ifPresent(topic -> topics.put(name, topic));
            }
        }
        hearIds(names);
    }

    private void hearIds(Collection<String> names) {
        Map<String, String> told = new HashMap<>();
        names.stream().filter(topics::containsKey).forEach(name -> told.put(name, topics.get(name).id()));
        ask("ids of topics", () -> {
            ids.hear(told);
            return null;
        });
        told.forEach((name, id) -> {
            if (!id.equals(ids.get(name))) {
                // The partitions that were told are those of the other topic, too.
                Optional<TopicInfo> found =
                        ofTopic("describe topic", name, Optional.empty(), () -> Optional.of(client.topic(name, ids.get(name))));
                found.ifPresent(topic -> topics.put(name, topic));
            }
        });
    }

    /** {@code none}, until the next look, where the topic was deleted, or nodes know another one of the name alone. */
    private <T> T ofTopic(String what, String topic, T none, Asking.Question<T> question) {
        return ask(what, () -> {
            try {
                return question.ask();
            } catch (UnknownTopicException gone) {
                topics.remove(topic);
                if (gone instanceof OtherTopicException other) {
                    untold.put(topic, other);
                }
                return none;
            }
        });
    }

    /** UncheckedIOException where nodes know another topic of such a name alone. */
    void requireTold(Collection<String> names) {
        for (String name : names) {
            if (untold.containsKey(name)) {
                throw new UncheckedIOException(untold.get(name));
            }
        }
    }

    private SortedSet<TopicPartition> partitionsOf(Collection<String> names, Selection selection) {
        SortedSet<TopicPartition> found = new TreeSet<>();
        for (String name : names) {
            TopicInfo topic = topics.get(name);
            for (int number = 0; topic != null && number < topic.partitions(); number++) {
                TopicPartition partition = new TopicPartition(name, number);
                if (selection == null || selection.names(partition)) {
                    found.add(partition);
                }
            }
        }
        return found;
    }

    /** As {@link #look}; IllegalArgumentException where something that the query names does not exist. */
    SortedSet<TopicPartition> requireSelected() {
        SortedSet<TopicPartition> found = look();
        requireTold(List.copyOf(untold.keySet()));
        if (options.selection() instanceof Selection.Subscribe subscribe) {
            requireTopics(subscribe.topics());
        } else if (options.selection() instanceof Selection.Assign assign) {
            requireExisting(assign.option(), assign.partitions());
        }
        return found;
    }

    private void requireTopics(Collection<String> names) {
        List<String> missing = names.stream().filter(name -> !topics.containsKey(name)).toList();
        if (!missing.isEmpty()) {
            throw missingTopics(missing);
        }
    }

    /** IllegalArgumentException where an option names a topic or a partition that does not exist. */
    void requireExisting(String option, Collection<TopicPartition> partitions) {
        List<String> names = TopicPartition.topicsOf(partitions);
        requireTopics(names);
        SortedSet<TopicPartition> missing = new TreeSet<>(partitions);
        missing.removeAll(partitionsOf(names, null));
        if (!missing.isEmpty()) {
            Map<String, Integer> counts = TopicPartition.topicsOf(missing).stream()
                    .collect(toMap(name -> name, name -> topics.get(name).partitions()));
            throw Errors.missingPartitions(option, missing, counts);
        }
    }

    /** The error that names them, and the topics that exist. */
    IllegalArgumentException missingTopics(Collection<String> missing) {
        List<TopicInfo> existing = ask("topics", () -> client.topics(null));
        return Errors.missingTopics(missing, existing.stream().map(TopicInfo::name).toList());
    }

    /**
     * The ids of the query's topics, as of the last look: another id under the same name is another topic. Offsets that are
     * asked for behind a look are those of these topics, or of newer ones that a later look tells from them.
     */
    Map<String, String> topicIds() {
        Map<String, String> found = new HashMap<>();
        topics.keySet().stream().filter(name -> ids.get(name) != null).forEach(name -> found.put(name, ids.get(name)));
        return found;
    }

    /**
     * Those whose leaders answer for them, whatever a node that lags has said at the last look. Those of whose topic nothing is
     * told are not known to be gone.
     */
    SortedSet<TopicPartition> present(Collection<TopicPartition> partitions) {
        SortedSet<TopicPartition> found = new TreeSet<>();
        for (String topic : TopicPartition.topicsOf(partitions)) {
            List<TopicPartition> its = partitions.stream().filter(each -> each.topic().equals(topic)).toList();
            boolean isThere = untold.containsKey(topic) || ask("read offset", () -> {
                try {
                    client.readOffset(topic, ids.get(topic), its.stream().map(TopicPartition::partition).toList());
                    return true;
                } catch (OtherTopicException other) {
                    return true;
                } catch (UnknownTopicException gone) {
                    return false;
                }
            });
            if (isThere) {
                found.addAll(its);
            }
        }
        return found;
    }

    /** The nodes that hold a partition, as of the last look; empty where that is not known. */
    List<Integer> replicas(TopicPartition at) {
        TopicInfo topic = topics.get(at.topic());
        return topic == null || at.partition() >= topic.partitions() ? List.of() : topic.replicas().get(at.partition());
    }

    // --- offsets -----------------------------------------------------------------------------------------------------

    SortedMap<TopicPartition, Long> earliest(Collection<TopicPartition> partitions) {
        return atTimestamps(all(partitions, OffsetJson.EARLIEST));
    }

    /** Exclusive ends, as fresh as the query's consistency demands. */
    SortedMap<TopicPartition, Long> latest(Collection<TopicPartition> partitions) {
        if (!options.isLinearizable()) {
            return atTimestamps(all(partitions, OffsetJson.LATEST));
        }
        return ofTopics(all(partitions, 0), "read offset", (topic, id, asked) -> options.readsCommitted()
                ? client.readStableOffset(topic, id, asked.keySet()) : client.readOffset(topic, id, asked.keySet()));
    }

    /** Linearizable ends: nothing acknowledged before this call lies at or above them. */
    SortedMap<TopicPartition, Long> provenLatest(Collection<TopicPartition> partitions) {
        return ofTopics(all(partitions, 0), "read offset", (topic, id, asked) -> client.readOffset(topic, id, asked.keySet()));
    }

    /** The offset of the first record at or after a time, -1 where there is none. Latest and earliest stand for themselves. */
    SortedMap<TopicPartition, Long> atTimestamps(SortedMap<TopicPartition, Long> timesMs) {
        return options.tier().mode() == TierOptions.Mode.LOCAL ? locally(timesMs) : listed(timesMs);
    }

    /** The search by time begins in the remote tier: what it finds there is moved to where the local disks begin. */
    private SortedMap<TopicPartition, Long> locally(SortedMap<TopicPartition, Long> timesMs) {
        SortedMap<TopicPartition, Long> asked = new TreeMap<>(timesMs);
        asked.replaceAll((partition, timeMs) -> timeMs == OffsetJson.EARLIEST ? (Long) LogReads.EARLIEST_LOCAL : timeMs);
        SortedMap<TopicPartition, Long> found = listed(asked);
        List<TopicPartition> searched = asked.keySet().stream()
                .filter(each -> asked.get(each) >= 0 && found.getOrDefault(each, -1L) >= 0)
                .toList();
        listed(all(searched, LogReads.EARLIEST_LOCAL))
                .forEach((partition, start) -> found.merge(partition, start, Math::max));
        return found;
    }

    private SortedMap<TopicPartition, Long> listed(SortedMap<TopicPartition, Long> timesMs) {
        return ofTopics(timesMs, "list offsets",
                (topic, id, asked) -> client.listOffsets(topic, id, asked, options.readsCommitted()));
    }

    @FunctionalInterface
    interface OfTopic {
        Map<Integer, Long> ask(String topic, String id, Map<Integer, Long> asked) throws IOException;
    }

    /**
     * Topics are asked for by the ids that are known. Nothing of one that was deleted after the last look, or of which nodes
     * know another one of the name alone.
     */
    SortedMap<TopicPartition, Long> ofTopics(SortedMap<TopicPartition, Long> asked, String what, OfTopic question) {
        Map<String, Map<Integer, Long>> byTopic = new TreeMap<>();
        asked.forEach((partition, value) ->
                byTopic.computeIfAbsent(partition.topic(), absent -> new TreeMap<>()).put(partition.partition(), value));
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        byTopic.forEach((topic, its) -> {
            Map<Integer, Long> answer = ofTopic(what, topic, Map.of(), () -> question.ask(topic, ids.get(topic), its));
            answer.forEach((number, offset) -> found.put(new TopicPartition(topic, number), offset));
        });
        return found;
    }

    /** The same for each of them. */
    static SortedMap<TopicPartition, Long> all(Collection<TopicPartition> partitions, long value) {
        SortedMap<TopicPartition, Long> all = new TreeMap<>();
        partitions.forEach(partition -> all.put(partition, value));
        return all;
    }
}
