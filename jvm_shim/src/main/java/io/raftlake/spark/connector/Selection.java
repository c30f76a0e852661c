package io.raftlake.spark.connector;

import java.io.Serializable;
import java.util.List;
import java.util.Objects;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Stream;

/** Which topics or partitions a query reads. */
public sealed interface Selection extends Serializable {
    /** The option that says it. */
    String option();

    /** Whether the query is to read this partition, where it exists. */
    boolean names(TopicPartition partition);

    /** Its option, and what the query reads. */
    private static String told(Selection selection, Object what) {
        return selection.option() + " " + what;
    }

    /** What an option names among these offsets, and the query does not read. */
    List<String> foreign(SortedMap<TopicPartition, Long> offsets);

    /** Whole topics, sorted. */
    record Subscribe(List<String> topics) implements Selection {
        @Override
        public String toString() {
            return told(this, String.join(", ", topics));
        }

        @Override
        public String option() {
            return OptionNames.SUBSCRIBE;
        }

        @Override
        public boolean names(TopicPartition partition) {
            return topics.contains(partition.topic());
        }

        @Override
        public List<String> foreign(SortedMap<TopicPartition, Long> offsets) {
            return TopicPartition.topicsOf(offsets.keySet()).stream().filter(topic -> !topics.contains(topic)).toList();
        }
    }

    /**
     * Topics whose whole name matches a regular expression; new ones are found while the query runs. Those that raftlake keeps
     * for itself match no expression but one that begins as they do: a stateful query of all topics would read the changes of
     * its own state, and so change it again.
     */
    record SubscribePattern(Pattern pattern) implements Selection {
        @Override
        public String toString() {
            return told(this, pattern);
        }

        @Override
        public String option() {
            return OptionNames.SUBSCRIBE_PATTERN;
        }

        public boolean matches(String topic) {
            boolean isMeant = !TopicPartition.isOwn(topic) || TopicPartition.isOwn(pattern.pattern());
            return isMeant && pattern.matcher(topic).matches();
        }

        @Override
        public boolean names(TopicPartition partition) {
            return matches(partition.topic());
        }

        @Override
        public List<String> foreign(SortedMap<TopicPartition, Long> offsets) {
            return TopicPartition.topicsOf(offsets.keySet()).stream().filter(topic -> !matches(topic)).toList();
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof SubscribePattern that && pattern.pattern().equals(that.pattern.pattern());
        }

        @Override
        public int hashCode() {
            return Objects.hash(pattern.pattern());
        }
    }

    /** Partitions, sorted. */
    record Assign(SortedSet<TopicPartition> partitions) implements Selection {
        @Override
        public String toString() {
            return told(this, Errors.list(partitions));
        }

        @Override
        public String option() {
            return OptionNames.ASSIGN;
        }

        @Override
        public boolean names(TopicPartition partition) {
            return partitions.contains(partition);
        }

        @Override
        public List<String> foreign(SortedMap<TopicPartition, Long> offsets) {
            return offsets.keySet().stream().filter(each -> !partitions.contains(each)).map(String::valueOf).toList();
        }
    }

    /** The one that the options give. IllegalArgumentException for none, several, or one that cannot be used. */
    static Selection of(RawOptions options) {
        String name = options.onlyOne(OptionNames.SELECTIONS);
        if (name == null) {
            throw Errors.noSelection();
        }
        String value = options.get(name);
        return switch (name) {
            case OptionNames.SUBSCRIBE -> subscribe(value);
            case OptionNames.SUBSCRIBE_PATTERN -> pattern(value);
            default -> assign(value);
        };
    }

    private static Selection subscribe(String value) {
        TreeSet<String> topics = new TreeSet<>(Stream.of(value.split(",")).map(String::strip).toList());
        topics.remove("");
        if (topics.isEmpty()) {
            throw Errors.wrongValue(OptionNames.SUBSCRIBE, value, "topics separated by commas");
        }
        return new Subscribe(List.copyOf(topics));
    }

    private static Selection pattern(String value) {
        try {
            if (!value.isEmpty()) {
                return new SubscribePattern(Pattern.compile(value));
            }
        } catch (PatternSyntaxException wrong) {
            String told = "a regular expression (" + wrong.getDescription() + ")";
            throw new IllegalArgumentException(
                    Errors.wrongValue(OptionNames.SUBSCRIBE_PATTERN, value, told).getMessage(), wrong);
        }
        throw Errors.wrongValue(OptionNames.SUBSCRIBE_PATTERN, value, "a regular expression");
    }

    private static Selection assign(String value) {
        SortedSet<TopicPartition> partitions = OffsetJson.parsePartitions(value);
        if (partitions.isEmpty()) {
            throw Errors.wrongValue(OptionNames.ASSIGN, value, "partitions by topic, as {\"topicA\":[0,1]}");
        }
        return new Assign(partitions);
    }
}
