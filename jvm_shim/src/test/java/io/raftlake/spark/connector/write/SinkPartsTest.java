package io.raftlake.spark.connector.write;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.connector.write.SinkKeys.Driver;
import io.raftlake.spark.connector.write.SinkKeys.Owner;
import io.raftlake.spark.log.Codec;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The parts of the sink that need no quorum: names, options, columns, partitions, encoded records. */
@Tag("memory")
class SinkPartsTest {
    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @ParameterizedTest
    @CsvSource({"abc-1_2.x~,abc-1_2.x~", "a/b c,a%2Fb%20c", "ü,%C3%BC", "50%,50%25"})
    void namesOfAppsAreQuotedAsInPython(String app, String quoted) {
        assertEquals("/sinks/apps/" + quoted + "/owner", SinkKeys.ownerKey(app));
        assertEquals("raftlake-sink.a." + quoted + ".1.2.3", SinkKeys.appTransactionalId(app, 5, 2, 3));
    }

    @Test
    void valuesOfKeysAreThoseOfPython() {
        byte[] owner = utf8("{\"run\":\"r\",\"query\":\"q\",\"host\":\"h\",\"pid\":7,\"since_ms\":5,\"generation\":2,"
                + "\"before\":[\"x\"],\"later\":true}");
        assertEquals(new Owner("r", "q", "h", 7, 5, 2, List.of("x")), Owner.decode(owner));
        byte[] batch = utf8("{\"batch\":3,\"run\":\"r\",\"rows\":4,\"tasks\":1,\"at_ms\":9,\"topics\":{\"t\":4}}");
        Committed committed = new Committed(3, "r", 4, 1, 9, Map.of("t", 4L));
        assertEquals(committed, Committed.decode(batch));
        assertArrayEquals(batch, committed.encode());
        assertEquals(-1, Committed.decode(utf8("no JSON")).batch());
    }

    /** Spark makes a write for each batch. What one batch has begun, the next one has to wait for. */
    @Test
    void theBatchesOfARunShareWhatTheyKnow() {
        QuerySink sink = new QuerySink();
        SinkOptions options = SinkOptions.of(Map.of("kafka.bootstrap.servers", "localhost:1", "topic", "t"));
        AppWrite ofRun = sink.app(options, "run 1", "query");
        assertSame(ofRun, sink.app(options, "run 1", "query"));
        AppWrite ofNext = sink.app(options, "run 2", "query");
        assertNotSame(ofRun, ofNext);
        assertSame(ofNext, sink.app(options, "run 2", "query"));
        assertTrue(sink.metrics().isEmpty());
    }

    @Test
    void theOwnersOfBeforeAreABoundedNumber() {
        Owner owner = Owner.decode(null);
        for (int run = 0; run < 40; run++) {
            owner = owner.followedBy("run" + run, "q", new Driver("h", 1), 0);
        }
        assertEquals(32, owner.before().size());
        assertEquals("run38", owner.before().get(31));
        assertEquals(40, owner.generation());
    }

    @ParameterizedTest
    @CsvSource({"'',275646681", "21,-973932308", "foobar,-790332482", "a-little-bit-long-string,-985981536",
        "a-little-bit-longer-string,-1486304829", "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8,-58897971"})
    void keysHashAsInKafka(String key, int hash) {
        byte[] bytes = utf8(key);
        assertEquals(hash, Murmur2.hash(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length));
    }

    @Test
    void rowsWithoutKeyStayTogetherInRuns() {
        TopicRows rows = new TopicRows("t", 3, 5);
        Map<Integer, Integer> counts = new HashMap<>();
        for (int row = 0; row < TopicRows.RUN_ROWS + 1; row++) {
            counts.merge(rows.next(), 1, Integer::sum);
        }
        assertEquals(Map.of(2, TopicRows.RUN_ROWS, 0, 1), counts);
        assertEquals("column partition: partition 3 does not exist: the topic has 3 partitions",
                assertThrows(InvalidRowException.class, () -> rows.given(3)).getMessage());
    }

    @Test
    void aRecordIsEncodedAsInABatch() {
        GenericInternalRow row = new GenericInternalRow(new Object[] {UTF8String.fromString("k"), utf8("vw")});
        Field key = new Field(0, false);
        Field value = new Field(1, true);
        key.read(row);
        value.read(row);
        Headers headers = new Headers(-1);
        headers.read(row);
        RecordBuffer buffer = new RecordBuffer();
        buffer.add(key, value, headers);
        byte[] expected = {18, 0, 0, 0, 2, 'k', 4, 'v', 'w', 0};
        assertArrayEquals(expected, java.util.Arrays.copyOf(buffer.array(), buffer.size()));
        assertEquals(1, buffer.count());
    }

    @ParameterizedTest
    @CsvSource({"-1,1", "0,1", "63,1", "64,2", "8191,2", "8192,3", "2147483647,5"})
    void numbersTakeTheBytesOfTheirSize(int number, int bytes) {
        assertEquals(bytes, RecordBuffer.varintBytes(number));
    }

    @Test
    void reportsOfTasksTravelInAMessageOfSparks() {
        TaskReport report = new TaskReport(new Ending(5, (short) 2), "id", Map.of("t", 9L));
        TaskReport empty = new TaskReport(null, "", Map.of());
        WriterCommitMessage[] messages = {report.message(), null, empty.message()};
        assertEquals(List.of(report, empty), TaskReport.of(messages));
        assertTrue(messages[0].getClass().getName().startsWith("org.apache.spark."), "the driver knows the class always");
    }

    @Test
    void columnsThatAreMissingOrWrongAreNamed() {
        StructType schema = new StructType().add("value", DataTypes.BinaryType).add("key", DataTypes.StringType)
                .add("headers", Columns.HEADERS).add("other", DataTypes.DateType);
        assertEquals(new SinkColumns(-1, 1, false, 0, true, 2, -1), SinkColumns.of(schema, "t"));
        assertEquals("Required attribute 'value' not found. The columns of the rows: none. Those of the sink: topic, key, value, "
                + "headers, partition", message(() -> SinkColumns.of(new StructType(), "t")));
        StructType wide = new StructType().add("VALEU", DataTypes.StringType);
        for (int column = 0; column < 11; column++) {
            wide = wide.add("c" + column, DataTypes.StringType);
        }
        StructType misspelt = wide;
        assertEquals("Required attribute 'value' not found; did you mean 'VALEU'? The columns of the rows: VALEU, c0, c1, c2, c3, "
                + "c4, c5, c6, c7, c8 and 2 more. Those of the sink: topic, key, value, headers, partition",
                message(() -> SinkColumns.of(misspelt, "t")));
        assertTrue(message(() -> SinkColumns.of(schema, null)).startsWith("topic option required when no 'topic' attribute"));
        assertEquals("value attribute unsupported type int. value must be a(n) string or binary",
                message(() -> SinkColumns.of(new StructType().add("value", DataTypes.IntegerType), "t")));
    }

    @Test
    void optionsHaveTheDefaultsAndTheWordsOfPython() {
        Map<String, String> raw = new HashMap<>(Map.of("kafka.bootstrap.servers", "h:1", "kafka.compression.type", "ZSTD"));
        SinkOptions options = SinkOptions.of(raw);
        assertEquals(Codec.ZSTD, options.codec());
        assertNull(options.topic());
        assertEquals(150_000, options.deliveryMs());
        assertEquals(900_000, options.transactionMs());
        raw.put("txnAppId", "a");
        assertEquals("Options 'txnAppId' and 'txnVersion' go together: who writes, and a rising number",
                message(() -> SinkOptions.of(raw)));
        raw.put("txnVersion", "x");
        assertEquals("Option 'txnVersion' is 'x', expected a whole number, 0 or above", message(() -> SinkOptions.of(raw)));
        raw.put("subscribe", "t");
        assertTrue(message(() -> SinkOptions.of(raw)).startsWith("Unknown option 'subscribe' for raftlake"));
    }

    private static String message(Runnable asked) {
        return assertThrows(IllegalArgumentException.class, asked::run).getMessage();
    }
}
