package io.raftlake.spark.connector.table;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Logs of tables, written out by hand. Those that raftlake and delta-rs write are read by tests/connector_contract. */
@Tag("memory")
class TopicTableTest {
    private static final String ID = "AAAAAAAAAAAAAAAAAAAAAQ";
    private static final String PROTOCOL = "{\"protocol\":{\"minReaderVersion\":1,\"minWriterVersion\":2}}";
    private static final String META = "{\"metaData\":{\"id\":\"x\",\"configuration\":{\"raftlake.clusterId\":\"c\","
            + "\"raftlake.topicId\":\"" + ID + "\",\"raftlake.topic\":\"t\"}}}";
    private static final MessageType CHECKPOINT = MessageTypeParser.parseMessageType("message m {"
            + " optional group add { required binary path (STRING);"
            + "  required group partitionValues (MAP) { repeated group key_value { required binary key (STRING);"
            + "   optional binary value (STRING); } }"
            + "  required int64 size; optional binary stats (STRING); }"
            + " optional group txn { required binary appId (STRING); required int64 version; }"
            + " optional group metaData { required group configuration (MAP) { repeated group key_value {"
            + "  required binary key (STRING); optional binary value (STRING); } } }"
            + " optional group protocol { required int32 minReaderVersion; } }");

    @TempDir
    private Path root;

    @BeforeEach
    void makeLog() throws IOException {
        Files.createDirectory(root.resolve("_delta_log"));
    }

    private void commit(int version, String... actions) throws IOException {
        Files.write(root.resolve(String.format("_delta_log/%020d.json", version)), List.of(actions));
    }

    private static String stats(long first, long last) {
        return "{\"numRecords\":" + (last - first + 1) + ",\"minValues\":{\"offset\":" + first
                + ",\"timestamp\":\"1970-01-01T00:00:01.500Z\"},\"maxValues\":{\"offset\":" + last + "}}";
    }

    private static String add(String path, int partition, long first, long last) {
        return "{\"add\":{\"path\":\"" + path + "\",\"partitionValues\":{\"partition\":\"" + partition + "\"},\"size\":7,"
                + "\"stats\":\"" + stats(first, last).replace("\"", "\\\"") + "\"}}";
    }

    private TopicTable read() throws IOException {
        return TopicTable.read(root.toString(), ID, new Configuration());
    }

    private String refusal() {
        return assertThrows(IOException.class, this::read).getMessage();
    }

    @Test
    void commitsAreAppliedInTheirOrder() throws IOException {
        commit(0, PROTOCOL, META);
        commit(1, add("partition=2/b%20c.parquet", 2, 10, 19), add("partition=0/a", 0, 0, 0));
        commit(2, add("partition=2/d", 2, 0, 9), "{\"commitInfo\":{}}");
        commit(3, "{\"remove\":{\"path\":\"partition=0/a\"}}", "{\"txn\":{\"appId\":\"c/" + ID + "/0/1\",\"version\":41}}");
        Span span = read().span(2);
        assertEquals(List.of(0L, 20L), List.of(span.start(), span.end()));
        assertTrue(span.holds(0) && span.holds(19) && !span.holds(20));
        assertEquals(List.of(root + "/partition=2/d", root + "/partition=2/b c.parquet"),
                span.files().stream().map(TableFile::path).toList());
        assertEquals(1_500_000, span.files().get(0).usMin());
        assertEquals(1, span.within(10, 11).size());
        assertEquals(new Span(42, 42, List.of()), read().span(0), "behind what it has shown");
        assertEquals(new Span(0, 0, List.of()), read().span(7));
    }

    @Test
    void aCheckpointStandsForTheCommitsBeforeIt() throws IOException {
        SimpleGroupFactory groups = new SimpleGroupFactory(CHECKPOINT);
        org.apache.hadoop.fs.Path place =
                new org.apache.hadoop.fs.Path(root.toString(), String.format("_delta_log/%020d.checkpoint.parquet", 4));
        try (ParquetWriter<Group> rows = ExampleParquetWriter.builder(place).withType(CHECKPOINT).build()) {
            Group protocol = groups.newGroup();
            protocol.addGroup("protocol").add("minReaderVersion", 1);
            rows.write(protocol);
            Group meta = groups.newGroup();
            Group properties = meta.addGroup("metaData").addGroup("configuration");
            Map.of("raftlake.clusterId", "c", "raftlake.topicId", ID)
                    .forEach((key, value) -> properties.addGroup("key_value").append("key", key).append("value", value));
            rows.write(meta);
            for (String[] file : new String[][] {{"partition=1/a", "0", "9"}, {"partition=1/b", "10", "19"}}) {
                Group row = groups.newGroup();
                Group add = row.addGroup("add").append("path", file[0]);
                add.addGroup("partitionValues").addGroup("key_value").append("key", "partition").append("value", "1");
                add.append("size", 5L).append("stats", stats(Long.parseLong(file[1]), Long.parseLong(file[2])));
                rows.write(row);
            }
            Group txn = groups.newGroup();
            txn.addGroup("txn").append("appId", "c/" + ID + "/3/0").append("version", 5L);
            rows.write(txn);
        }
        commit(5, "{\"remove\":{\"path\":\"partition=1/a\"}}", add("partition=1/c", 1, 20, 29));
        assertEquals(List.of(root + "/partition=1/b", root + "/partition=1/c"),
                read().span(1).files().stream().map(TableFile::path).toList());
        assertEquals(6, read().span(3).end());
    }

    @Test
    void offsetsThatAreNotThereOnceAreRefused() throws IOException {
        commit(0, PROTOCOL, META, add("a", 0, 0, 9), add("b", 0, 11, 12), add("c", 1, 0, 9), add("d", 1, 9, 12),
                "{\"add\":{\"path\":\"e\",\"partitionValues\":{\"partition\":\"2\"},\"size\":1}}");
        TopicTable table = read();
        assertTrue(assertThrows(IOException.class, () -> table.span(0)).getMessage().contains("offset 10 is missing"));
        assertTrue(assertThrows(IOException.class, () -> table.span(1)).getMessage().contains("offset 9 may be there twice"));
        assertTrue(assertThrows(IOException.class, () -> table.span(2)).getMessage().contains("does not tell its offsets"));
    }

    @Test
    void tablesOfOthersAreRefused() throws IOException {
        assertTrue(refusal().startsWith("there is no Delta table at "));
        commit(0, PROTOCOL, "{\"metaData\":{\"configuration\":{}}}");
        assertTrue(refusal().contains("is none of raftlake's"));
        commit(0, PROTOCOL, META.replace(ID, "AAAAAAAAAAAAAAAAAAAAAg"));
        assertTrue(refusal().contains("has another topic id"));
        commit(0, PROTOCOL.replace(":1,", ":3,"), META);
        assertTrue(refusal().contains("needs readers of version 3"));
        commit(0, PROTOCOL, META);
        commit(2, add("a", 0, 0, 9));
        assertTrue(refusal().contains("has no commit 1"));
    }

    @Test
    void theStoreIsSetUpInTheWordsOfDeltaRs() {
        Configuration conf = TableStore.settings(new Configuration(false),
                Map.of("AWS_ACCESS_KEY_ID", "k", "endpoint_url", "http://h", "aws_allow_http", "true"));
        assertEquals("k", conf.get("fs.s3a.access.key"));
        assertEquals("http://h", conf.get("fs.s3a.endpoint"));
        assertFalse(conf.getBoolean("fs.s3a.connection.ssl.enabled", true));
        assertEquals("s3a://b/t", TableStore.place("s3://b/t"));
        assertEquals("/t", TableStore.place("/t"));
        String told = assertThrows(IllegalArgumentException.class,
                () -> TableStore.settings(new Configuration(false), Map.of("azure_key", "hidden"))).getMessage();
        assertTrue(told.startsWith("Option 'tier.storage.azure_key' has no counterpart") && !told.contains("hidden"), told);
    }
}
