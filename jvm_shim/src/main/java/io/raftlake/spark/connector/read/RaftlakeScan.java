package io.raftlake.spark.connector.read;

import io.raftlake.spark.connector.SourceOptions;
import io.raftlake.spark.log.LogReads;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** One query of the topics, batch or stream. */
final class RaftlakeScan implements Scan {
    private final SourceOptions options;
    private final StructType columns;
    private final Wanted wanted;
    private final long rowsMax;

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

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.SUPPORTED;
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
        LogReads client = RaftlakeScanBuilder.client(ofStream.quorum());
        return new RaftlakeStream(ofStream, client, new LogView(client, ofStream), readers());
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
            LogView view = new LogView(RaftlakeScanBuilder.client(ofBatch.quorum()), ofBatch);
            return new Planner(view, ofBatch).batch(wanted).toArray(InputPartition[]::new);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return readers();
        }
    }
}
