package io.raftlake.spark.connector.write;

import java.io.IOException;
import java.io.UncheckedIOException;
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
 */
record SinkWriterFactory(SinkOptions options, SinkColumns columns, Standing standing, JobNumber job)
        implements DataWriterFactory, StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId) {
        return job == null ? createWriter(partition, taskId, options.appVersion()) : ofJob(partition);
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long taskId, long batch) {
        if (standing.lastBatch() >= batch) {
            return new SkippingWriter();
        }
        SinkTask task = new SinkTask("batch " + batch + ": ", partition, transactionalId(standing, partition));
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
        return new SinkWriter(options, columns, client, new SinkTask("", partition, name));
    }

    /** Of the attempt that calls. */
    static String transactionalId(Standing standing, int partition) {
        return SinkKeys.appTransactionalId(standing.app(), standing.generation(), partition, attempt());
    }

    private static int attempt() {
        TaskContext context = TaskContext.get();
        return context == null ? 0 : context.attemptNumber();
    }
}
