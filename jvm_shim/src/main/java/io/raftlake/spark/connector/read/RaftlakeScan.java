package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** One query of the topics, batch or stream. */
final class RaftlakeScan implements Scan {
    private final SourceOptions options;
    private final StructType columns;
    private final Wanted wanted;
    private final long rowsMax;
    private ParquetPartitionReaderFactory parquet;

    /** Of a streaming query. */
    private RaftlakeStream stream;

    RaftlakeScan(SourceOptions options, StructType columns, Wanted wanted, long rowsMax) {
        this.options = options;
        this.columns = columns;
        this.wanted = wanted;
        this.rowsMax = rowsMax;
    }

    @Override
    public StructType readSchema() {
        return columns;
    }

    /** As plans and the progress of streams show it. */
    @Override
    public String description() {
        return describe(options);
    }

    static String describe(SourceOptions options) {
        return "raftlake[" + options.selection() + "]";
    }

    /** Spark asks before each batch, and reads rows in real-time mode. */
    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return stream != null && stream.isRealTime() ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return ReadMetrics.all();
    }

    @Override
    public Batch toBatch() {
        return new BatchQuery(options.forBatch());
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        SourceOptions ofStream = options.forStream();
        Sources sources = Sources.of(ofStream, true);
        stream = new RaftlakeStream(ofStream, sources.client(), sources.view(), planner(sources, ofStream), readers(),
                new RealTimeReaderFactory(columns));
        return stream;
    }

    private Planner planner(Sources sources, SourceOptions ofQuery) {
        return new Planner(sources.view(), ofQuery, sources.tables(), () -> parquet(sources.conf()));
    }

    /** Made once: it sends the settings of file systems to the executors. */
    private ParquetPartitionReaderFactory parquet(Configuration conf) {
        if (parquet == null) {
            SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
            parquet = TablePiece.readers(session, conf, columns);
        }
        return parquet;
    }

    private PartitionReaderFactory readers() {
        return new RangeReaderFactory(columns, rowsMax);
    }

    private final class BatchQuery implements Batch {
        private final SourceOptions ofBatch;

        private BatchQuery(SourceOptions ofBatch) {
            this.ofBatch = ofBatch;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            // A wrong id costs the rows of its topic: an error tells of them, unless the query is to go on.
            Sources sources = Sources.of(ofBatch, !ofBatch.failOnDataLoss());
            return planner(sources, ofBatch).batch(wanted).toArray(InputPartition[]::new);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return readers();
        }
    }
}
