package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.connector.table.TableFile;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.UnknownTopicException;
import java.io.UncheckedIOException;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * What the tables alone say of the topics of a query with {@code tier=remote}. The nodes name the topics, their ids and their
 * partitions.
 */
final class HistoryView extends LogView {
    /** A query with nothing to read is asked for news a hundred times a second; its table is looked at this often. */
    private static final long TABLE_AGE_MS_MAX = 1_000;

    private static final long US_PER_MS = 1_000;

    private final Tables tables;

    HistoryView(LogReads client, SourceOptions options, TopicIds ids, Tables tables) {
        super(client, options, ids);
        this.tables = tables;
    }

    @Override
    SortedMap<TopicPartition, Long> latest(Collection<TopicPartition> partitions) {
        return atTimestamps(all(partitions, OffsetJson.LATEST));
    }

    @Override
    SortedMap<TopicPartition, Long> provenLatest(Collection<TopicPartition> partitions) {
        return latest(partitions);
    }

    @Override
    SortedMap<TopicPartition, Long> atTimestamps(SortedMap<TopicPartition, Long> timesMs) {
        Set<String> known = topicIds().keySet();
        SortedMap<TopicPartition, Long> asked = new TreeMap<>(timesMs);
        // A topic that was deleted after the last look has no offsets.
        asked.keySet().removeIf(partition -> !known.contains(partition.topic()));
        return ofTopics(asked, "tables", this::offsets);
    }

    private Map<Integer, Long> offsets(String topic, String id, Map<Integer, Long> timesMs) throws UnknownTopicException {
        Map<Integer, Long> found = new TreeMap<>();
        try {
            timesMs.forEach((number, timeMs) -> found.put(number, offset(new TopicPartition(topic, number), id, timeMs)));
        } catch (UncheckedIOException refused) {
            if (refused.getCause() instanceof UnknownTopicException gone) {
                throw gone;
            }
            throw refused;
        }
        return found;
    }

    private long offset(TopicPartition at, String id, long timeMs) {
        Span shown = tables.newest(at, id, TABLE_AGE_MS_MAX);
        return timeMs == OffsetJson.EARLIEST ? shown.start()
                : timeMs == OffsetJson.LATEST ? shown.end() : firstAt(at, shown, timeMs);
    }

    /** The first offset of a table that is as late as a time; -1 where none is. */
    private long firstAt(TopicPartition at, Span shown, long timeMs) {
        for (TableFile file : shown.files()) {
            if (file.usMax() == null || file.usMax() >= timeMs * US_PER_MS) {
                long found = tables.firstAt(at, file, timeMs * US_PER_MS);
                if (found >= 0) {
                    return found;
                }
            }
        }
        return -1;
    }
}
