package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.ProducerId;
import io.raftlake.spark.query.QueryRun;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/**
 * Makes the writers of tasks, on executors.
 *
 * @param standing what the driver found before the batch; null for a write without an app
 * @param job the number of a write without an app; else null
 * @param producers by task, for its first attempt ({@link NextProducers})
 */
record SinkWriterFactory(
        SinkOptions options, SinkColumns columns, Standing standing, JobNumber job, Map<Integer, ProducerId> producers)
        implements DataWriterFactory, StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId) {
        return job == null ? createWriter(partition, taskId, options.appVersion()) : ofJob(partition);
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId, long batch) {
        if (standing.lastBatch() >= batch) {
            return new SkippingWriter(QueryRun.isOfQuery(TaskContext.get()));
        }
        ProducerId producer = isFirstAttempt() ? producers.get(partition) : null;
        SinkTask task = new SinkTask("batch " + batch + ": ", partition, transactionalId(standing, partition), producer);
        return new SinkWriter(options, columns, SinkClient.of(options.quorum()), task);
    }

    private DataWriter<InternalRow> ofJob(int partition) {
        SinkClient client = SinkClient.of(options.quorum());
        try {
            client.jobs().require(job);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        String name = SinkKeys.jobTransactionalId(job.number(), partition, attempt());
        return new SinkWriter(options, columns, client, new SinkTask("", partition, name, null));
    }

    /** Of the attempt that calls. */
    static String transactionalId(Standing standing, int partition) {
        return SinkKeys.appTransactionalId(standing.app(), standing.generation(), partition, attempt());
    }

    /** Attempts count from 0 again where Spark begins the stage again. */
    private static boolean isFirstAttempt() {
        TaskContext context = TaskContext.get();
        return context != null && context.attemptNumber() == 0 && context.stageAttemptNumber() == 0;
    }

    private static int attempt() {
        TaskContext context = TaskContext.get();
        return context == null ? 0 : context.attemptNumber();
    }
}
