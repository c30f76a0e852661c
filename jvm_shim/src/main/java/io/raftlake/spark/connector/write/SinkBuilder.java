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

/** Writes of rows to topics. What is wrong with options, columns or the topic is said before any task runs. */
public final class SinkBuilder implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final LogicalWriteInfo info;
    private final Map<String, String> options;
    private final SinkProgress progress;
    private boolean truncates;

    public SinkBuilder(LogicalWriteInfo info, Map<String, String> options) {
        this(info, options, new SinkProgress());
    }

    /** {@code progress} is told of each batch of a streaming query. */
    public SinkBuilder(LogicalWriteInfo info, Map<String, String> options, SinkProgress progress) {
        this.info = info;
        this.options = options;
        this.progress = progress;
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
        SinkColumns columns = SinkColumns.of(info.schema(), parsed.topic());
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
            return new SinkStreamingWrite(parsed, columns, info.queryId(), progress);
        }

        @Override
        public CustomMetric[] supportedCustomMetrics() {
            return WriteMetrics.all();
        }
    }
}
