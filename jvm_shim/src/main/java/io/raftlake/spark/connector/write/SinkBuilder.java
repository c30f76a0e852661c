package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OptionNames;
import io.raftlake.spark.connector.read.Asking;
import java.util.Map;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;

/** Writes of rows to topics. What is wrong with options, columns or the topic is said before any task runs. */
public final class SinkBuilder implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final StructType rows;
    private final String queryId;
    private final Map<String, String> options;
    private final QuerySink sink;
    private boolean truncates;

    public SinkBuilder(LogicalWriteInfo info, Map<String, String> options) {
        this(info.schema(), info.queryId(), options, new QuerySink());
    }

    /** {@code rows}: the columns that are written. {@code sink}: of the batches of a streaming query. */
    public SinkBuilder(StructType rows, String queryId, Map<String, String> options, QuerySink sink) {
        this.rows = rows;
        this.queryId = queryId;
        this.options = options;
        this.sink = sink;
    }

    /** IllegalArgumentException for a column of a type that cannot be written. Not all columns have to be there. */
    public static void requireTypes(StructType rows) {
        SinkColumns.requireTypes(rows);
    }

    /** Of streams: complete mode, which appends. A batch query that overwrites is refused. */
    @Override
    public WriteBuilder truncate() {
        truncates = true;
        return this;
    }

    @Override
    public Write build() {
        SinkOptions parsed = SinkOptions.of(options);
        SinkColumns columns = SinkColumns.of(rows, parsed.topic());
        if (parsed.topic() != null) {
            Asking.patiently(parsed.quorum().patience(), "the topic of the sink",
                    () -> SinkClient.of(parsed.quorum()).partitions(parsed.topic()));
        }
        return new SinkWrite(parsed, columns);
    }

    private final class SinkWrite implements Write {
        private final SinkOptions parsed;
        private final SinkColumns columns;

        private SinkWrite(SinkOptions parsed, SinkColumns columns) {
            this.parsed = parsed;
            this.columns = columns;
        }

        @Override
        public String description() {
            return "raftlake" + (parsed.topic() == null ? "" : " topic " + parsed.topic());
        }

        @Override
        public BatchWrite toBatch() {
            if (truncates) {
                throw new UnsupportedOperationException("Save mode overwrite not allowed for raftlake. Allowed save mode is "
                        + "append: a log cannot be overwritten");
            }
            return new SinkBatchWrite(parsed, columns);
        }

        @Override
        public StreamingWrite toStreaming() {
            if (parsed.app() != null) {
                throw Errors.unsupportedOption(OptionNames.TXN_APP,
                        "a stream is known by its query id, and its batches by their numbers");
            }
            return new SinkStreamingWrite(parsed, columns, queryId, sink).planned();
        }

        @Override
        public CustomMetric[] supportedCustomMetrics() {
            return WriteMetrics.all();
        }
    }
}
