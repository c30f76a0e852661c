package io.raftlake.spark.connector.write;

import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The batches of one run of a streaming query. Append and update mode append the rows of each batch; complete mode appends the whole
 * result of each batch, as Spark's Kafka sink does.
 */
final class SinkStreamingWrite implements StreamingWrite {
    private static final Logger LOG = LoggerFactory.getLogger(SinkStreamingWrite.class);

    private final SinkOptions options;
    private final SinkColumns columns;
    private final AppWrite app;

    SinkStreamingWrite(SinkOptions options, SinkColumns columns, String query, SinkProgress progress) {
        this.options = options;
        this.columns = columns;
        this.app = new AppWrite(options, query, SparkRun.id(), query, progress);
    }

    /** Spark asks once per batch. */
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        return new SinkWriterFactory(options, columns, app.begin(), null);
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
        app.commit(batch, messages);
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
        app.abort(messages);
        LOG.warn("batch {} failed; none of its rows is visible", batch);
    }
}
