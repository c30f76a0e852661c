package io.raftlake.spark.connector;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/** Errors of options, topics and offsets, in the words of the Python connector ({@code pyspark_raftlake/errors.py}). */
public final class Errors {
    /** Topics that an error lists, those with a similar name first. */
    private static final int TOPICS_SHOWN_MAX = 10;

    /** Columns of rows that an error lists. */
    private static final int COLUMNS_SHOWN_MAX = 10;

    private static final int CLOSE_MAX = 3;

    private Errors() {}

    static String list(Collection<?> items) {
        return items.stream().map(String::valueOf).collect(Collectors.joining(", "));
    }

    // --- options -----------------------------------------------------------------------------------------------------

    public static IllegalArgumentException unknownOption(String name, Collection<String> known) {
        Map<String, String> canonical = new LinkedHashMap<>();
        known.forEach(option -> canonical.put(option.toLowerCase(Locale.ROOT), option));
        List<String> close = CloseNames.of(name.toLowerCase(Locale.ROOT), canonical.keySet(), 1);
        String hint = close.isEmpty() ? "" : "; did you mean '" + canonical.get(close.get(0)) + "'?";
        return new IllegalArgumentException("Unknown option '" + name + "' for raftlake" + hint);
    }

    public static IllegalArgumentException unsupportedOption(String name, String reason) {
        return new IllegalArgumentException("Option '" + name + "' is not supported: " + reason);
    }

    public static IllegalArgumentException wrongValue(String name, String value, String expected) {
        return new IllegalArgumentException("Option '" + name + "' is '" + value + "', expected " + expected);
    }

    public static IllegalArgumentException missingServers() {
        return new IllegalArgumentException(
                "Option 'kafka.bootstrap.servers' (or 'bootstrap.servers') must be specified for configuring raftlake");
    }

    public static IllegalArgumentException noSelection() {
        return new IllegalArgumentException("One of the following options must be specified for raftlake source: "
                + list(OptionNames.SELECTIONS));
    }

    public static IllegalArgumentException exclusiveOptions(List<String> names) {
        return new IllegalArgumentException(
                "Only one of the following options can be specified for raftlake: " + list(names));
    }

    // --- rows --------------------------------------------------------------------------------------------------------

    /** {@code given}: the columns of the rows; {@code known}: those of the sink. */
    public static IllegalArgumentException missingValue(List<String> given, List<String> known) {
        String shown = given.isEmpty() ? "none" : list(given.subList(0, Math.min(given.size(), COLUMNS_SHOWN_MAX)));
        if (given.size() > COLUMNS_SHOWN_MAX) {
            shown += " and " + (given.size() - COLUMNS_SHOWN_MAX) + " more";
        }
        Map<String, String> canonical = new LinkedHashMap<>();
        given.forEach(column -> canonical.put(column.toLowerCase(Locale.ROOT), column));
        List<String> close = CloseNames.of("value", canonical.keySet(), 1);
        String hint = close.isEmpty() ? "." : "; did you mean '" + canonical.get(close.get(0)) + "'?";
        return new IllegalArgumentException("Required attribute 'value' not found" + hint + " The columns of the rows: " + shown
                + ". Those of the sink: " + list(known));
    }

    // --- topics and offsets ------------------------------------------------------------------------------------------

    public static IllegalArgumentException missingTopics(Collection<String> missing, Collection<String> existing) {
        List<String> names = List.copyOf(new TreeSet<>(missing));
        Set<String> found = new TreeSet<>(existing);
        found.removeIf(TopicPartition::isOwn);
        found.removeAll(names);
        Set<String> close = new LinkedHashSet<>();
        names.forEach(name -> close.addAll(CloseNames.of(name, found, CLOSE_MAX)));
        List<String> shown = new ArrayList<>(close);
        found.stream().filter(topic -> !close.contains(topic)).forEach(shown::add);
        shown = shown.subList(0, Math.min(shown.size(), TOPICS_SHOWN_MAX));
        String listed = shown.isEmpty() ? "none" : list(shown);
        if (found.size() > shown.size()) {
            listed += " and " + (found.size() - shown.size()) + " more";
        }
        String subject = names.size() == 1
                ? "Topic '" + names.get(0) + "' does not exist" : "Topics " + list(names) + " do not exist";
        return new IllegalArgumentException(subject + "; existing topics: " + listed);
    }

    public static IllegalArgumentException missingPartitions(
            String option, Collection<TopicPartition> missing, Map<String, Integer> counts) {
        List<String> told = new ArrayList<>();
        new TreeMap<>(counts).forEach((topic, count) -> told.add(topic + " has " + count));
        return new IllegalArgumentException("Option '" + option + "' names partitions that do not exist: " + list(missing)
                + " (numbers of partitions: " + list(told) + ")");
    }

    public static IllegalArgumentException incompleteOffsets(
            String option, Collection<TopicPartition> specified, Collection<TopicPartition> assigned) {
        return incomplete("If " + option + " contains specific offsets", " Use -1 for latest, -2 for earliest.", specified,
                assigned);
    }

    public static IllegalArgumentException incompleteTimestamps(
            String option, Collection<TopicPartition> specified, Collection<TopicPartition> assigned) {
        return incomplete("If " + option + " is given", "", specified, assigned);
    }

    private static IllegalArgumentException incomplete(
            String condition, String hint, Collection<?> specified, Collection<?> assigned) {
        return new IllegalArgumentException(condition + ", you must specify all TopicPartitions." + hint + " Specified: "
                + list(specified) + ". Assigned: " + list(assigned));
    }

    /** What is said of topics that a checkpoint has read, and the option of the restarted query does not name. */
    public static String noLongerNamed(String option, Collection<String> topics) {
        return "Option '" + option + "' was changed: it no longer names all of " + list(topics)
                + ", which the checkpoint of this query has read. Their offsets would be dropped";
    }

    public static IllegalArgumentException noOffsetForTimestamp(TopicPartition partition, long timestampMs) {
        return new IllegalArgumentException("No offset matched from request of topic-partition " + partition
                + " and timestamp " + timestampMs + ".");
    }

    public static IllegalArgumentException startTimeAfterEndTime(long startMs, long endMs) {
        return new IllegalArgumentException(
                "The starting timestamp " + startMs + " is after the ending timestamp " + endMs);
    }

    public static IllegalArgumentException endBeforeStart(TopicPartition partition, long start, long end) {
        return new IllegalArgumentException("The query's starting position of " + partition + " is offset " + start
                + ", after its ending position " + end);
    }

    public static IllegalArgumentException endBeyondTheLog(TopicPartition partition, long end, long logEnd) {
        return new IllegalArgumentException("endingOffsets for " + partition + " is " + end + ", but the log ends at " + logEnd
                + ". With the source option \"failOnDataLoss\" set to \"false\" the query ends there");
    }

    public static IllegalArgumentException startAfterEnd(TopicPartition partition, long start, long end) {
        return new IllegalArgumentException(
                "startingOffsets for " + partition + " is " + start + ", after its endingOffsets " + end);
    }
}
