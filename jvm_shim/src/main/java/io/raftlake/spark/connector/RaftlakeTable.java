package io.raftlake.spark.connector;

import io.raftlake.spark.connector.read.RaftlakeScanBuilder;
import io.raftlake.spark.connector.write.QuerySink;
import io.raftlake.spark.connector.write.SinkBuilder;
import io.raftlake.spark.log.Logs.Topic;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The topics that options name, as one table. */
public final class RaftlakeTable implements SupportsRead, SupportsWrite, ReportsSinkMetrics {
    static final String TOPIC_ID = "topic_id";
    static final String PARTITIONS = "partitions";

    private final StructType schema;
    private final Map<String, String> options;
    private final QuerySink sink = new QuerySink();

    /** Of a table of the catalog; else null. */
    private final Topic topic;

    /** What was set for the topic. Asked for when somebody wants to see it, and not for each query. */
    private final Supplier<Map<String, String>> configs;

    /** {@code schema}: of the source, or of the rows that are written. */
    public RaftlakeTable(StructType schema, Map<String, String> options) {
        this(schema, options, null, Map::of);
    }

    private RaftlakeTable(StructType schema, Map<String, String> options, Topic topic, Supplier<Map<String, String>> configs) {
        this.schema = schema;
        this.options = Map.copyOf(options);
        this.topic = topic;
        this.configs = configs;
    }

    /**
     * One topic, as a table of the catalog. {@code options}: of the catalog; those of a query go before them. {@code configs}:
     * what was set for the topic.
     */
    static RaftlakeTable ofTopic(Topic topic, Map<String, String> options, Supplier<Map<String, String>> configs) {
        boolean hasHeaders = new CaseInsensitiveStringMap(options).getBoolean(OptionNames.INCLUDE_HEADERS, false);
        return new RaftlakeTable(Columns.ofSource(hasHeaders), options, topic, configs);
    }

    /** Those of the table with those of a query. {@code topicOption}: how a topic is named. */
    private Map<String, String> options(CaseInsensitiveStringMap ofQuery, String topicOption) {
        if (topic == null) {
            return options;
        }
        Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        all.putAll(options);
        all.putAll(ofQuery.asCaseSensitiveMap());
        all.put(topicOption, topic.name());
        return all;
    }

    /** What is wrong with the options of a source, or with its topics, is said here, before any query runs. */
    static StructType inferSchema(Map<String, String> options) {
        CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
        if (OptionNames.SELECTIONS.stream().noneMatch(given::containsKey)) {
            // A sink has none. A source without one is refused by its scan.
            return Columns.ofSource(given.getBoolean(OptionNames.INCLUDE_HEADERS, false));
        }
        SourceOptions source = SourceOptions.of(options);
        RaftlakeScanBuilder.requireReadable(source);
        return Columns.ofSource(source.includeHeaders());
    }

    @Override
    public String name() {
        return topic == null ? RaftlakeProvider.FORMAT : topic.name();
    }

    /** Of a table of the catalog: what makes such a table again, and the id of the topic. */
    @Override
    public Map<String, String> properties() {
        if (topic == null) {
            return Map.of();
        }
        Map<String, String> all = new TreeMap<>(configs.get());
        all.put(PARTITIONS, Integer.toString(topic.partitions()));
        all.put(TOPIC_ID, topic.id());
        return all;
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.BATCH_WRITE,
                TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
        SourceOptions source = SourceOptions.of(options(ofQuery, OptionNames.SUBSCRIBE));
        Columns.requireOfSource(schema, source.includeHeaders());
        return new RaftlakeScanBuilder(source);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        StructType rows = topic == null ? info.schema() : TableColumns.ofRows(info.schema(), topic.name());
        return new SinkBuilder(rows, info.queryId(), options(info.options(), OptionNames.TOPIC), sink);
    }

    /** As the progress of a query shows its sink. */
    @Override
    public String toString() {
        String name = topic != null ? topic.name() : new CaseInsensitiveStringMap(options).get(OptionNames.TOPIC);
        return "raftlake[" + (name == null ? "topics that rows name" : "topic " + name) + "]";
    }

    /** Of the last batch that a streaming query wrote. */
    @Override
    public Map<String, String> metrics() {
        return sink.metrics();
    }
}
