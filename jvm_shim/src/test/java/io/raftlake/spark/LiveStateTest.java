package io.raftlake.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.kit.Spaces;
import io.raftlake.spark.kit.StateQuery;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.state.StateDataSourceException;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A query that counts words, and reads of its state while it runs. On a quorum the tests in Python do that. */
@Tag("memory")
class LiveStateTest {
    private static SparkSession spark;

    @TempDir
    Path words;

    private final String pipeline = Spaces.newPipeline();
    private final String checkpoint = "raftlake://" + pipeline + "/main";
    private StreamingQuery query;
    private int files;

    @BeforeAll
    static void startSpark() {
        SparkSession.Builder builder = SparkSession.builder()
                .master("local[1]")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.streaming.stateStore.providerClass", StateQuery.OfMemory.class.getName())
                .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
                .config("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
                .config("spark.sql.streaming.checkpointFileManagerClass", QuorumCheckpointFileManager.class.getName());
        Map<String, String> settings = Spaces.conf().getPropsWithPrefix("");
        settings.entrySet().stream()
                .filter(entry -> entry.getKey().contains("raftlake"))
                .forEach(entry -> builder.config("spark.hadoop." + entry.getKey(), entry.getValue()));
        spark = builder.getOrCreate();
        // A test lets reads fail.
        spark.sparkContext().setLogLevel("OFF");
    }

    @AfterAll
    static void stopSpark() {
        spark.stop();
    }

    @BeforeEach
    void start() throws TimeoutException {
        query = spark.readStream().text(words.toString()).groupBy("value").count()
                .writeStream().format("noop").outputMode("update").option("checkpointLocation", checkpoint).start();
    }

    @AfterEach
    void stop() throws TimeoutException {
        query.stop();
    }

    /** One batch over these words. */
    private void process(String... of) throws IOException {
        Path file = words.resolve("." + files);
        Files.writeString(file, String.join("\n", of) + "\n");
        Files.move(file, words.resolve(files++ + ".txt"));
        query.processAllAvailable();
    }

    private Dataset<Row> state(String... options) {
        var reader = spark.read().format("raftlake-state").option("path", checkpoint);
        for (int at = 0; at < options.length; at += 2) {
            reader = reader.option(options[at], options[at + 1]);
        }
        return reader.load();
    }

    private static Map<String, Long> counts(Dataset<Row> state) {
        Map<String, Long> found = new TreeMap<>();
        state.selectExpr("key.value", "value.count").collectAsList()
                .forEach(row -> assertEquals(null, found.put(row.getString(0), row.getLong(1)), "a key in two partitions"));
        return found;
    }

    private String owner() throws IOException {
        return new String(Spaces.SPACE.get("/fs-owner/" + pipeline + "/main").orElseThrow().value());
    }

    @Test
    void everyReadShowsTheNewestBatch() throws IOException {
        process("a", "b", "a");
        String owner = owner();
        Dataset<Row> state = state();
        state.createOrReplaceTempView("live");
        assertEquals(Map.of("a", 2L, "b", 1L), counts(state()));
        for (long more = 1; more <= 4; more++) {
            process("a", "c");
            assertEquals(Map.of("a", 2 + more, "b", 1L, "c", more), counts(state()));
            assertEquals(2 + more, spark.sql("select value.count from live where key.value = 'a'").first().getLong(0));
            assertEquals(3, state.count());
        }
        assertEquals(owner, owner(), "a reader takes nothing");
        assertTrue(query.isActive());
    }

    @Test
    void aBatchThatIsNamedStaysTheSame() throws IOException {
        process("a");
        Dataset<Row> first = state("batchId", "0");
        process("a", "b");
        process("b");
        assertEquals(Map.of("a", 1L), counts(first));
        assertEquals(Map.of("a", 2L, "b", 1L), counts(state("BatchID", "1")));
        assertEquals(Map.of("a", 2L, "b", 2L), counts(state()));
        assertThrows(StateDataSourceException.class, () -> state("batchId", "3"));
    }

    @Test
    void partitionsWithoutRowsAreReadToo() throws IOException {
        process("a");
        assertEquals(2, state().rdd().getNumPartitions());
        assertEquals(1, state().count());
    }

    /** Such a query has one partition, whatever the setting says. */
    @Test
    void theStateOfAQueryWithoutKeysIsRead() throws IOException, TimeoutException {
        query.stop();
        query = spark.readStream().text(words.toString()).agg(functions.count("*").as("rows"))
                .writeStream().format("noop").outputMode("update").option("checkpointLocation", checkpoint + "-all").start();
        process("a", "b", "a");
        Row row = spark.read().format("raftlake-state").load(checkpoint + "-all").select("value.*").collectAsList().get(0);
        assertEquals(3, row.getLong(0));
    }

    /** A query that goes on removes what it no longer retains; here the log of its state goes at once. */
    @Test
    void aBatchThatIsGoneIsNamed() throws IOException, TimeoutException {
        process("a");
        Dataset<Row> first = state("batchId", "0");
        process("b");
        Dataset<Row> newest = state("batchId", "1");
        query.stop();
        String owner = new String(Spaces.SPACE.get("/fs-state/" + pipeline + "/main").orElseThrow().value());
        String id = owner.replaceFirst(".*\"id\" *: *\"([0-9a-f]+)\".*", "$1");
        for (String topic : Spaces.LOGS.topics("__raftlake-state-" + id)) {
            Spaces.LOGS.deleteTopic(topic);
        }
        String told = failure(first);
        assertTrue(told.contains("batch 0 of `" + checkpoint + "'") && told.contains("is at batch 1 now"), told);
        assertTrue(told.contains("Read again") && told.contains("spark.sql.streaming.minBatchesToRetain"), told);
        told = failure(newest);
        assertFalse(told.contains("Read again"), told);
    }

    private static String failure(Dataset<Row> state) {
        return assertThrows(SparkException.class, state::count).toString();
    }

    @Test
    void whatIsNoOptionOrNoPathIsRefused() throws IOException {
        process("a");
        String told = assertThrows(IllegalArgumentException.class, () -> state("readChangeFeed", "true")).getMessage();
        assertTrue(told.contains("'readchangefeed'") && told.contains("format statestore"), told);
        told = assertThrows(IllegalArgumentException.class,
                () -> spark.read().format("raftlake-state").load("file:///tmp/checkpoint")).getMessage();
        assertTrue(told.contains("raftlake://") && told.contains("file:///tmp/checkpoint"), told);
        assertThrows(StateDataSourceException.class, () -> spark.read().format("raftlake-state").load());
    }

    private String refusal(String path, String... options) {
        var reader = spark.read().format("raftlake-state").option("path", path);
        return assertThrows(IllegalArgumentException.class, () -> reader.options(Map.of(options[0], options[1])).load()).getMessage();
    }

    @Test
    void whatIsNotThereIsNamed() throws Exception {
        process("a");
        for (String path : List.of("raftlake://" + pipeline + "/other", checkpoint + "/metadata", checkpoint + "/state")) {
            String told = refusal(path, "operatorId", "0");
            assertTrue(told.startsWith("there is no checkpoint at '" + path + "'") && told.contains("checkpoints list"), told);
        }
        assertEquals("option 'batchId' is 'abc', expected a number, 0 or more", refusal(checkpoint, "batchId", "abc"));
        assertEquals("option 'operatorId' is '-1', expected a number, 0 or more", refusal(checkpoint, "operatorId", "-1"));
        String told = refusal(checkpoint, "operatorId", "7");
        assertTrue(told.startsWith("operator 7 of checkpoint '" + checkpoint + "'") && told.endsWith("with state: 0"), told);
        query.stop();
        query = spark.readStream().text(words.toString()).writeStream().format("noop")
                .option("checkpointLocation", checkpoint + "-none").start();
        process("b");
        assertEquals("the query of checkpoint '" + checkpoint + "-none' keeps no state",
                refusal(checkpoint + "-none", "operatorId", "0"));
    }
}
