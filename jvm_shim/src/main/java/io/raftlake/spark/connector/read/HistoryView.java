package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.OffsetJson;
import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.connector.table.TableFile;
import io.raftlake.spark.log.LogReads;
import java.util.Collection;
import java.util.Map;
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
        Map<String, String> ids = topicIds();
        SortedMap<TopicPartition, Long> found = new TreeMap<>();
        timesMs.forEach((partition, timeMs) -> {
            // A topic that was deleted after the last look has no offsets.
            if (ids.containsKey(partition.topic())) {
                Span shown = tables.newest(partition, ids.get(partition.topic()), TABLE_AGE_MS_MAX);
                found.put(partition, timeMs == OffsetJson.EARLIEST ? (Long) shown.start()
                        : timeMs == OffsetJson.LATEST ? (Long) shown.end() : (Long) firstAt(partition, shown, timeMs));
            }
        });
        return found;
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
