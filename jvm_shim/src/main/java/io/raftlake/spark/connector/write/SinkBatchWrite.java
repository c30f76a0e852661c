package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.read.Asking;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A write of its own, or with {@code txnAppId} and {@code txnVersion} one of an app, which happens once. */
final class SinkBatchWrite implements BatchWrite {
    private static final Logger LOG = LoggerFactory.getLogger(SinkBatchWrite.class);
    private static final long SETTLE_MS_MAX = 5_000;

    private final SinkOptions options;
    private final SinkColumns columns;
    private final String run = SparkRun.id();

    /** Null for a write without an app. */
    private final AppWrite app;

    private JobNumber job;

    SinkBatchWrite(SinkOptions options, SinkColumns columns) {
        this.options = options;
        this.columns = columns;
        this.app = options.app() == null
                ? null : new AppWrite(options, options.app(), run, SparkRun.query(), new SinkProgress(), false);
    }

    private SinkClient client() {
        return SinkClient.of(options.quorum());
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        if (app != null) {
            return new SinkWriterFactory(options, columns, app.begin(), null, Map.of());
        }
        job = Asking.patiently(options.quorum().patience(), "a number for the write",
                () -> client().jobs().claim(run, Driver.current()));
        return new SinkWriterFactory(options, columns, null, job, Map.of());
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
        if (app != null) {
            app.commit(options.appVersion(), messages);
            return;
        }
        List<TaskReport> reports = TaskReport.of(messages);
        Asking.patiently(options.quorum().patience(), "the commit of the write", () -> {
            client().jobs().commit(job, TaskReport.endings(reports));
            client().leftovers().settle(reports.stream().map(TaskReport::transaction).toList(), SETTLE_MS_MAX);
            return null;
        });
        LOG.info("appended rows by topic: {}", TaskReport.rows(reports));
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
        if (app != null) {
            AbortedWrite.end("a batch of " + options.app(), () -> {
                app.abort(messages);
                return app::lookAgain;
            });
        } else if (job != null) {
            AbortedWrite.end("the write with the number " + job.number(), () -> {
                JobLedger jobs = client().jobs();
                JobNumber ended = jobs.abort(job, TaskReport.endings(TaskReport.of(messages)));
                return () -> jobs.lookAgain(ended);
            });
        }
        LOG.warn("the query failed; none of its rows is visible");
    }
}
