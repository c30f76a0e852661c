package io.raftlake.spark.query;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Which run a thread works for, also where a function of the user has chosen a job group. */
@Tag("memory")
class QueryRunTest {
    private static final UUID ACTIVE = UUID.fromString("8d0e3b1c-0000-4000-8000-000000000001");
    private static final String OTHER = "8d0e3b1c-0000-4000-8000-000000000002";

    @TempDir
    Path directory;

    @Test
    void theRunThatSparkHasWinsOverAGroupThatTheUserNamed() {
        assertEquals(ACTIVE.toString(), QueryRun.choose("nightly totals", ACTIVE, true));
        assertEquals(ACTIVE.toString(), QueryRun.choose("nightly totals", ACTIVE, false));
        assertEquals(ACTIVE.toString(), QueryRun.choose(null, ACTIVE, false));
        assertEquals(ACTIVE.toString(), QueryRun.choose(OTHER, ACTIVE, true));
        // A thread that is left of the run before is none of the new run.
        assertEquals(OTHER, QueryRun.choose(OTHER, ACTIVE, false));
        assertEquals("nightly totals", QueryRun.choose("nightly totals", null, false));
        assertNull(QueryRun.choose(null, null, false));
    }

    @Test
    void aJobGroupWithinForeachBatchChangesNoRun() throws Exception {
        SparkSession spark = SparkSession.builder().master("local[1]").config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate();
        spark.sparkContext().setLogLevel("OFF");
        try {
            Path lines = Files.createDirectory(directory.resolve("lines"));
            List<Optional<String>> seen = new ArrayList<>();
            StreamingQuery query = spark.readStream().text(lines.toString()).writeStream()
                    .option("checkpointLocation", directory.resolve("checkpoint").toString())
                    .foreachBatch((VoidFunction2<Dataset<Row>, Long>) (rows, batch) -> {
                        seen.add(QueryRun.run(spark.sparkContext()));
                        spark.sparkContext().setJobGroup(batch == 0 ? "nightly totals" : OTHER, "", false);
                        seen.add(QueryRun.run(spark.sparkContext()));
                        seen.add(CompletableFuture.supplyAsync(() -> QueryRun.query(spark.sparkContext()), Runnable::run).join());
                    }).start();
            for (int batch = 0; batch < 3; batch++) {
                Files.writeString(lines.resolve("of-" + batch), "line\n");
                query.processAllAvailable();
            }
            Optional<String> run = Optional.of(query.runId().toString());
            Optional<String> id = Optional.of(query.id().toString());
            query.stop();
            assertEquals(List.of(run, run, id, run, run, id, run, run, id), seen);
            assertEquals(Optional.empty(), QueryRun.run(spark.sparkContext()), "a thread of the user");
            assertEquals(Optional.empty(), QueryRun.active(id.get()));
            assertEquals(Optional.empty(), QueryRun.active("no id"));
        } finally {
            spark.stop();
        }
    }
}
