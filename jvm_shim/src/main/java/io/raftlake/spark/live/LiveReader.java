package io.raftlake.spark.live;

import java.io.IOException;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Spark's reader of one partition. Where it fails and the query has gone on since, the error says so: the query may have removed
 * the batch, as it does with those that it no longer retains.
 */
final class LiveReader implements PartitionReader<InternalRow> {
    private final PartitionReader<InternalRow> reader;
    private final Factory factory;

    private LiveReader(PartitionReader<InternalRow> reader, Factory factory) {
        this.reader = reader;
        this.factory = factory;
    }

    @Override
    public boolean next() throws IOException {
        return factory.explaining(reader::next);
    }

    @Override
    public InternalRow get() {
        return reader.get();
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return reader.currentMetricsValues();
    }

    @Override
    public void close() throws IOException {
        reader.close();
    }

    /** What executors get. */
    static final class Factory implements PartitionReaderFactory {
        private static final long serialVersionUID = 1;

        private final PartitionReaderFactory factory;
        private final String location;
        private final long batch;
        private final SerializableConfiguration conf;

        Factory(PartitionReaderFactory factory, String location, long batch, SerializableConfiguration conf) {
            this.factory = factory;
            this.location = location;
            this.batch = batch;
            this.conf = conf;
        }

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            return new LiveReader(factory.createReader(partition), this);
        }

        private <T> T explaining(Callable<T> call) throws IOException {
            try {
                return call.call();
            } catch (Exception error) {
                // Spark's errors are checked ones that its methods do not name.
                OptionalLong newest = newestBatch(new Path(location, "commits"), conf.value());
                if (newest.isPresent() && newest.getAsLong() > batch) {
                    throw new IOException("batch " + batch + " of `" + location + "' could not be read to its end, and the query"
                            + " is at batch " + newest.getAsLong() + " now: it may have removed that batch. Read again, which"
                            + " begins with the newest batch, or raise spark.sql.streaming.minBatchesToRetain of the query", error);
                }
                if (error instanceof RuntimeException unchecked) {
                    throw unchecked;
                }
                throw error instanceof IOException named ? named : new IOException(error.getMessage(), error);
            }
        }

        /** Nothing where no batch is committed. */
        private static OptionalLong newestBatch(Path commits, Configuration conf) throws IOException {
            return Missing.numbers(commits.getFileSystem(conf), commits).stream().mapToLong(Long::longValue).max();
        }
    }
}
