package io.raftlake.spark.connector.write;

import java.util.Map;

/**
 * What the batches of a streaming query share: Spark makes a write anew for each batch, and keeps the table.
 *
 * <p>Without it each batch would ask who owns the sink, and would not know of the sweep behind the batch before, which takes open
 * transactions for left ones.
 */
public final class QuerySink {
    private final SinkProgress progress = new SinkProgress();
    private String run;
    private AppWrite app;

    /** The driver's half of the batches of a run: the same one while the run lasts. */
    synchronized AppWrite app(SinkOptions options, String run, String query) {
        if (!run.equals(this.run)) {
            this.run = run;
            app = new AppWrite(options, query, run, query, progress, true);
        }
        return app;
    }

    SinkProgress progress() {
        return progress;
    }

    /** What the last batch took; empty before the first batch. */
    public Map<String, String> metrics() {
        return progress.metrics();
    }
}
