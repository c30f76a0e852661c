package io.raftlake.spark.connector.write;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The batches of one run of a streaming query. Append and update mode append the rows of each batch; complete mode appends the whole
 * result of each batch, as Spark's Kafka sink does.
 *
 * <p>In real-time mode rows are sent at once, without a transaction, so that each of them is visible within milliseconds, and not
 * when its batch is over. Spark writes {@code offsets/N} behind the commit here, and removes it in a restart without {@code
 * commits/N}. So a batch that is repeated has other rows, under the same number: it is never skipped, and its number is not noted
 * down, since a query that goes on in another mode would skip its batch of that number. The rows of a repeated batch come once
 * more: at least once. The owner of the sink is kept all the same: an older driver that still runs is stopped.
 */
final class SinkStreamingWrite implements StreamingWrite {
    private static final Logger LOG = LoggerFactory.getLogger(SinkStreamingWrite.class);

    /** Runs that were told what real-time mode promises. */
    private static final Set<String> WARNED = ConcurrentHashMap.newKeySet();

    private final SinkOptions options;
    private final SinkColumns columns;
    private final String query;
    private final SinkProgress progress;
    private final AppWrite app;
    private final boolean isRealTime;

    SinkStreamingWrite(SinkOptions options, SinkColumns columns, String query, SinkProgress progress) {
        this.options = options;
        this.columns = columns;
        this.query = query;
        this.progress = progress;
        this.isRealTime = SparkRun.isRealTime(query);
        String run = SparkRun.id();
        this.app = new AppWrite(options, query, run, query, progress);
        if (isRealTime && WARNED.add(run)) {
            LOG.warn("query {}: in real-time mode the sink writes at least once. Rows are visible at once, and those of a batch that "
                    + "fails, or is repeated by a restart, may be there twice", query);
        }
    }

    /** Spark asks once per batch. */
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        Standing standing = app.begin();
        return isRealTime ? new RealTimeWriterFactory(options, columns) : new SinkWriterFactory(options, columns, standing, null);
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
        if (!isRealTime) {
            app.commit(batch, messages);
            return;
        }
        // A run that was replaced meanwhile must not go on to its offsets.
        app.begin();
        long rows = TaskReport.rows(TaskReport.of(messages)).values().stream().mapToLong(Long::longValue).sum();
        progress.committed(batch, rows, messages.length, 0, 0);
        LOG.info("batch {} of {}: {} rows in real-time mode", batch, query, rows);
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
        if (isRealTime) {
            LOG.warn("batch {} failed; rows that it has sent are visible, and may come once more", batch);
            return;
        }
        app.abort(messages);
        LOG.warn("batch {} failed; none of its rows is visible", batch);
    }
}
