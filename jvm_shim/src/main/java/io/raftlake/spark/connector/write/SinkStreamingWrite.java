package io.raftlake.spark.connector.write;

import io.raftlake.spark.checkpoint.EpochEnds;
import java.util.Optional;
import java.util.OptionalLong;
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
 * <p>In real-time mode rows are sent at once. Spark writes {@code offsets/N} behind the commit here, then {@code commits/N}, and
 * removes the former in a restart without the latter. So a batch that is repeated has other rows, under the same number, and cannot
 * be skipped. Where the checkpoint lies in the quorum of the sink, the rows are those of transactions, and become visible with
 * {@code commits/N} ({@link EpochEnds}): each once, when its batch is over.
 *
 * <p>Elsewhere, or where the user wants it, rows have no transaction, and each is visible within milliseconds: at least once. The
 * number of a batch is not noted down then, since a query that goes on in another mode would skip its batch of that number. The
 * owner of the sink is kept all the same: an older driver that still runs is stopped.
 */
final class SinkStreamingWrite implements StreamingWrite {
    private static final Logger LOG = LoggerFactory.getLogger(SinkStreamingWrite.class);

    private final SinkOptions options;
    private final SinkColumns columns;
    private final String query;
    private final SinkProgress progress;
    private final AppWrite app;
    private final boolean isRealTime;

    /** What decides the batches of real-time mode, each row once; nothing in another mode, and at least once. */
    private final Optional<EpochEnds> ends;

    SinkStreamingWrite(SinkOptions options, SinkColumns columns, String query, QuerySink sink) {
        this.options = options;
        this.columns = columns;
        this.query = query;
        this.progress = sink.progress();
        String run = SparkRun.id();
        OptionalLong lastsMs = SparkRun.realTimeMs(query);
        this.isRealTime = lastsMs.isPresent();
        this.ends = isRealTime ? RealTime.ends(options, query, run, lastsMs.getAsLong()) : Optional.empty();
        this.app = sink.app(options, run, query);
    }

    /**
     * Spark has the batch optimized, and no task of it has begun. Some begin before Spark asks for writers: those of a sort, of a
     * broadcast, and of the stages before the last one where Spark adapts the plan.
     */
    SinkStreamingWrite planned() {
        if (!isRealTime) {
            app.awaitPlan();
        }
        return this;
    }

    /** Spark asks once per batch. */
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        if (ends.isPresent()) {
            return new RealTimeWriterFactory(options, columns, app.beginEpoch(SparkRun.batch()));
        }
        Standing standing = app.begin();
        return isRealTime
                ? new RealTimeWriterFactory(options, columns, null)
                : new SinkWriterFactory(options, columns, standing, null, app.producers());
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
        if (!isRealTime) {
            app.commit(batch, messages);
            return;
        }
        if (ends.isPresent()) {
            app.commitWith(ends.get(), batch, messages);
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
        if (isRealTime && ends.isEmpty()) {
            LOG.warn("batch {} failed; rows that it has sent are visible, and may come once more", batch);
            return;
        }
        app.abort(messages);
        LOG.warn("batch {} failed; none of its rows is visible", batch);
    }
}
