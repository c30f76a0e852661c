package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.connector.TierOptions;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.connector.table.Span;
import io.raftlake.spark.connector.table.TableFile;
import io.raftlake.spark.connector.table.TableStore;
import io.raftlake.spark.connector.table.TopicTable;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.OtherTopicException;
import io.raftlake.spark.log.UnknownTopicException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The Delta tables of a query's topics: where they are, which offsets they show, which files hold a range.
 *
 * <p>The nodes say where the table of a topic is, and up to where it is copied. A plan of a topic without a remote tier costs
 * one question of it in a minute, and one about records that are not copied yet opens no table. A table that this driver
 * cannot read is an error where the user asked for tables. Otherwise the nodes serve its records, and a warning says so.
 */
class Tables {
    private static final Logger LOG = LoggerFactory.getLogger(Tables.class);
    private static final String IS_TIERED = "remote.storage.enable";
    private static final String TABLE_URI = "raftlake.tier.table.uri";

    /** A topic without a table, and a table that could not be read, are looked at again after this time. */
    private static final long LOOK_AGAIN_MS = 60_000;

    private static final class Known {
        private final String id;
        private final String uri;
        private final long askedAtMs;
        private TopicTable table;
        private long readAtMs;
        private Long failedAtMs;

        private Known(String id, String uri, long askedAtMs) {
            this.id = id;
            this.uri = uri;
            this.askedAtMs = askedAtMs;
        }
    }

    private final LogReads client;
    private final SourceOptions options;
    private final Configuration conf;
    private final LongSupplier nowMs;
    private final Map<String, Known> topics = new HashMap<>();

    /** {@code session}: settings of file systems. {@code nowMs}: of a clock that only goes forward. */
    Tables(LogReads client, SourceOptions options, Configuration session, LongSupplier nowMs) {
        this.client = client;
        this.options = options;
        this.conf = TableStore.settings(session, options.tier().storage());
        this.nowMs = nowMs;
    }

    /** What the tables show of the partitions of some ranges. Partitions whose ranges lie behind all copies are left out. */
    Map<TopicPartition, Span> shown(List<OffsetRange> ranges, Map<String, String> topicIds) {
        Map<TopicPartition, Span> found = new HashMap<>();
        if (options.tier().mode() == TierOptions.Mode.LOCAL) {
            return found;
        }
        Map<String, List<OffsetRange>> byTopic = new TreeMap<>();
        for (OffsetRange range : ranges) {
            if (range.size() > 0 && topicIds.containsKey(range.at().topic())) {
                byTopic.computeIfAbsent(range.at().topic(), absent -> new ArrayList<>()).add(range);
            }
        }
        byTopic.forEach((topic, its) -> {
            Known known = knownOrGone(topic, topicIds.get(topic));
            if (known != null && known.uri != null) {
                found.putAll(shown(topic, known, its));
            }
        });
        return found;
    }

    private Map<TopicPartition, Span> shown(String topic, Known known, List<OffsetRange> ranges) {
        Map<TopicPartition, Span> found = new HashMap<>();
        Map<Integer, Long> copied = new TreeMap<>();
        ranges.forEach(range -> copied.put(range.at().partition(), LogReads.LATEST_TIERED));
        copied.putAll(tieredEnds(topic, known.id, copied));
        List<OffsetRange> its = ranges.stream().filter(range -> range.start() < copied.get(range.at().partition())).toList();
        boolean hasFailed = known.failedAtMs != null && nowMs.getAsLong() - known.failedAtMs < LOOK_AGAIN_MS;
        if (its.isEmpty() || hasFailed) {
            return found;
        }
        try {
            boolean isOld = known.table == null;
            for (OffsetRange range : its) {
                int number = range.at().partition();
                isOld = isOld || known.table.span(number).end() < Math.min(range.end(), copied.get(number));
            }
            if (isOld) {
                read(known);
            }
            for (OffsetRange range : its) {
                found.put(range.at(), known.table.span(range.at().partition()));
            }
        } catch (IOException | RuntimeException | LinkageError error) {
            giveUp(topic, known, error);
            found.clear();
        }
        return found;
    }

    private void read(Known known) throws IOException {
        known.table = TopicTable.read(TableStore.place(known.uri), known.id, conf);
        known.readAtMs = nowMs.getAsLong();
        known.failedAtMs = null;
    }

    /**
     * Of a query of tables alone: what one shows of a partition, at most so old. IllegalArgumentException where it cannot be
     * read.
     */
    Span newest(TopicPartition at, String topicId, long ageMsMax) {
        Known known = known(at.topic(), topicId);
        if (known.uri == null) {
            throw new IllegalArgumentException("Option 'tier' is 'remote', and topic '" + at.topic()
                    + "' has no remote tier: the nodes have no tier.uri. Set the option 'tier.uri' to where its table is, or "
                    + "'tier' to 'auto'");
        }
        try {
            if (known.table == null || nowMs.getAsLong() - known.readAtMs >= ageMsMax) {
                read(known);
            }
            return known.table.span(at.partition());
        } catch (IOException | RuntimeException | LinkageError error) {
            requireNoInterrupt(error);
            boolean isCopied = known.table != null || options.tier().uri() != null
                    || tieredEnds(at.topic(), topicId, Map.of(at.partition(), LogReads.LATEST_TIERED)).get(at.partition()) > 0;
            if (isCopied) {
                giveUp(at.topic(), known, error);
            }
            return new Span(0, 0, List.of());
        }
    }

    /** The first offset of a file that is as late as a time in microseconds; -1 where none is. */
    long firstAt(TopicPartition at, TableFile file, long us) {
        StructType columns = new StructType().add("offset", DataTypes.LongType).add("timestamp", DataTypes.TimestampType);
        SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
        TablePiece piece = new TablePiece(TablePiece.readers(session, conf, columns), List.of(file), false);
        OffsetRange range = new OffsetRange(at, file.offsetMin(), file.end());
        try (TableReader rows = new TableReader(piece, range, columns, false)) {
            while (rows.next()) {
                for (int row = 0; row < rows.batch().numRows(); row++) {
                    if (rows.batch().column(1).getLong(row) >= us) {
                        return rows.batch().column(0).getLong(row);
                    }
                }
            }
            return -1;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    Configuration conf() {
        return conf;
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    private <T> T ask(String what, Asking.Question<T> question) {
        return Asking.patiently(options.quorum().patience(), what, question);
    }

    private Known known(String topic, String id) {
        Known known = topics.get(topic);
        boolean isOld = known != null && known.uri == null && nowMs.getAsLong() - known.askedAtMs >= LOOK_AGAIN_MS;
        if (known == null || !known.id.equals(id) || isOld) {
            known = new Known(id, place(topic, id), nowMs.getAsLong());
            topics.put(topic, known);
        }
        return known;
    }

    /** Null where the topic is gone. */
    private Known knownOrGone(String topic, String id) {
        try {
            return known(topic, id);
        } catch (UncheckedIOException refused) {
            if (refused.getCause() instanceof UnknownTopicException gone && !(gone instanceof OtherTopicException)) {
                return null;
            }
            throw refused;
        }
    }

    private boolean isTableAlone() {
        return options.tier().mode() == TierOptions.Mode.REMOTE;
    }

    /** Null without a remote tier. */
    private String place(String topic, String id) {
        String base = options.tier().uri();
        String named = base == null ? null : base.replaceFirst("/+$", "") + "/" + topic + "-" + id;
        if (named != null && isTableAlone()) {
            return named;
        }
        Map<String, String> configs = ask("topic configs", () -> client.topicConfigs(topic));
        boolean isTiered = "true".equals(configs.get(IS_TIERED));
        if (named != null && !isTiered) {
            throw new IllegalArgumentException("Option 'tier.uri' is '" + base + "', and topic '" + topic
                    + "' has no remote tier: its log does not go on where a table ends. Set 'tier' to 'remote' to read its "
                    + "table alone, or leave 'tier.uri' out");
        }
        String uri = named == null ? configs.get(TABLE_URI) : named;
        if (!isTiered || uri == null) {
            return null;
        }
        if (uri.endsWith("/" + topic + "-" + id)) {
            return uri;
        }
        // The name may be that of another topic already. Or the node lags, and names the table of one that was deleted.
        if (isTableAlone()) {
            throw new UncheckedIOException(new OtherTopicException("a node names the table of another topic " + topic));
        }
        return null;
    }

    /** A query that is stopped is told nothing about its tables. */
    private static void requireNoInterrupt(Throwable error) {
        boolean isInterrupt = error instanceof InterruptedIOException || error.getCause() instanceof InterruptedException;
        if (isInterrupt || Thread.currentThread().isInterrupted()) {
            if (error instanceof RuntimeException unchecked) {
                throw unchecked;
            }
            throw new UncheckedIOException(error instanceof IOException checked ? checked : new IOException(error));
        }
    }

    /** Up to where partitions are copied, as the quorum says; 0 where nothing is. */
    private Map<Integer, Long> tieredEnds(String topic, String id, Map<Integer, Long> asked) {
        Map<Integer, Long> found = ask("list offsets", () -> {
            try {
                return client.listOffsets(topic, id, asked, true);
            } catch (UnknownTopicException gone) {
                // A query of tables alone is not to take a copy that nobody tells of for none.
                if (isTableAlone() && gone instanceof OtherTopicException) {
                    throw gone;
                }
                return Map.of();
            }
        });
        Map<Integer, Long> ends = new TreeMap<>();
        asked.keySet().forEach(number -> ends.put(number, found.getOrDefault(number, -1L) + 1));
        return ends;
    }

    /**
     * Goes on without a table that cannot be read, where the user did not ask for it. Hadoop tells of a store whose classes are
     * missing by a RuntimeException or a LinkageError.
     */
    private void giveUp(String topic, Known known, Throwable error) {
        requireNoInterrupt(error);
        known.table = null;
        known.failedAtMs = nowMs.getAsLong();
        String told = "the table of topic '" + topic + "' at " + known.uri + " cannot be read here: " + error.getMessage();
        String uri = options.tier().uri();
        if (uri != null) {
            throw new IllegalArgumentException("Option 'tier.uri' is '" + uri + "', and " + told, error);
        }
        told += ". The nodes serve its records unless 'tier' is 'remote'. Set the option 'tier.uri' where this machine sees "
                + "the store under another path, and 'tier.storage.<option>' to what the store needs";
        if (options.tier().isStrict()) {
            throw new IllegalArgumentException(told, error);
        }
        LOG.warn("{}", told);
    }
}
