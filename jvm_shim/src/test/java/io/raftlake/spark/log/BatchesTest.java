package io.raftlake.spark.log;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.Logs.Header;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Record batches: those of Kafka's own classes (tests/golden/batches.txt) are read, and ours are the same bytes. */
@Tag("memory")
class BatchesTest {
    private static final Map<String, byte[]> GOLDEN = golden();
    private static final long TIME_MS = 1_700_000_000_000L;
    private static final List<LogRecord> RECORDS = List.of(
            new LogRecord(utf8("key"), utf8("value"), List.of(new Header("h", utf8("1")), new Header("é", null))),
            LogRecord.of(null, utf8("")),
            LogRecord.of(utf8(""), null),
            LogRecord.of(utf8("k"), utf8("delayed ".repeat(100))));

    private static Map<String, byte[]> golden() {
        try {
            Map<String, byte[]> found = new HashMap<>();
            for (String line : Files.readAllLines(Path.of("tests/golden/batches.txt"))) {
                String[] parts = line.split(" ");
                found.put(parts[0], HexFormat.of().parseHex(parts[1]));
            }
            return found;
        } catch (IOException error) {
            throw new IllegalStateException("the tests run at the root of the project", error);
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String told(List<Numbered> records) {
        StringBuilder text = new StringBuilder();
        for (Numbered each : records) {
            text.append(each.offset()).append(' ').append(each.timestampMs()).append(' ').append(told(each.record())).append('\n');
        }
        return text.toString();
    }

    private static String told(LogRecord record) {
        List<String> headers = record.headers().stream()
                .map(header -> header.key() + "=" + Arrays.toString(header.value()))
                .toList();
        return Arrays.toString(record.key()) + Arrays.toString(record.value()) + headers;
    }

    private static List<Numbered> read(Batches batches) throws IOException {
        List<Numbered> found = new ArrayList<>();
        while (batches.next()) {
            batches.forEach(found::add);
        }
        return found;
    }

    private static List<Numbered> read(byte[] data) throws IOException {
        return read(new Batches(ByteBuffer.wrap(data), List.of()));
    }

    private static List<Numbered> numbered(List<LogRecord> records, long... timesMs) {
        List<Numbered> all = new ArrayList<>();
        for (int index = 0; index < records.size(); index++) {
            all.add(new Numbered(40 + index, timesMs[timesMs.length == 1 ? 0 : index], records.get(index)));
        }
        return all;
    }

    @ParameterizedTest
    @EnumSource
    void kafkasBatchesAreRead(Codec codec) throws IOException {
        List<Numbered> expected =
                numbered(RECORDS, TIME_MS, TIME_MS + 5, TIME_MS - 10, TIME_MS + 100_000);
        assertEquals(told(expected), told(read(GOLDEN.get(codec.name().toLowerCase(java.util.Locale.ROOT)))));
    }

    @Test
    void ourBatchesHaveTheSameBytes() throws IOException {
        byte[] batch = BatchWriter.batch(RECORDS, Codec.NONE, TIME_MS);
        BatchWriter.stamp(batch, new ProducerId(5, (short) 3), 9);
        // What the leader writes.
        ByteBuffer.wrap(batch).putLong(0, 40).putInt(12, 7);
        assertArrayEquals(GOLDEN.get("one-time"), batch);
        assertEquals(told(numbered(RECORDS, TIME_MS)), told(read(batch)));
    }

    @ParameterizedTest
    @EnumSource
    void eachCodecGivesBackWhatItGot(Codec codec) throws IOException {
        List<LogRecord> many = new ArrayList<>(RECORDS);
        for (int index = 0; index < 2000; index++) {
            many.add(LogRecord.of(utf8("key " + index), utf8(index + " minutes late, ".repeat(index % 50))));
        }
        byte[] batch = BatchWriter.batch(many, codec, TIME_MS);
        assertEquals(codec.ordinal(), batch[22] & 7);
        ByteBuffer.wrap(batch).putLong(0, 40);
        assertEquals(told(numbered(many, TIME_MS)), told(read(batch)));
        // Several blocks of a codec were needed.
        assertTrue(new Batches(ByteBuffer.wrap(batch), List.of()).next());
    }

    @Test
    void whatACodecDoesNotMakeSmallerStaysAsItIs() throws IOException {
        byte[] small = BatchWriter.batch(RECORDS, Codec.LZ4, TIME_MS);
        byte[] random = BatchWriter.batch(List.of(LogRecord.of(null, bytes(100_000))), Codec.LZ4, TIME_MS);
        assertEquals(0, small[22] & 7);
        assertEquals(0, random[22] & 7);
    }

    @ParameterizedTest
    @EnumSource
    void aPayloadAboveTheBoundIsRefused(Codec codec) throws IOException {
        byte[] content = new byte[100_000];
        byte[] compressed = codec.compress(content, content.length);
        ByteBuffer whole = codec.decompress(ByteBuffer.wrap(compressed), 100_000);
        assertEquals(100_000, whole.remaining());
        if (codec != Codec.NONE) {
            IOException tooLarge =
                    assertThrows(IOException.class, () -> codec.decompress(ByteBuffer.wrap(compressed), 99_999));
            assertTrue(tooLarge.getMessage().contains("99999"), tooLarge.getMessage());
            byte[] cut = Arrays.copyOf(compressed, compressed.length / 2);
            IOException ended = assertThrows(IOException.class, () -> codec.decompress(ByteBuffer.wrap(cut), 100_000));
            assertTrue(ended.getMessage().contains("payload is damaged"), ended.getMessage());
        }
    }

    @Test
    void theTimeOfTheLogCounts() throws IOException {
        List<Numbered> found = read(GOLDEN.get("log-append-time"));
        assertEquals(1, found.size());
        assertEquals(0x01a1fdb6234bL, found.get(0).timestampMs());
    }

    @Test
    void controlBatchesArePassed() throws IOException {
        byte[] data = joined(GOLDEN.get("none"), at(GOLDEN.get("leader-change"), 44));
        Batches batches = new Batches(ByteBuffer.wrap(data), List.of());
        assertEquals(-1, batches.nextOffset());
        assertEquals(4, read(batches).size());
        assertEquals(45, batches.nextOffset());
    }

    @Test
    void aPieceAtTheEndIsLeftOut() throws IOException {
        byte[] whole = GOLDEN.get("none");
        byte[] next = at(whole, 44);
        for (int cut : new int[] {1, 11, 60, 61, next.length - 1}) {
            Batches batches = new Batches(ByteBuffer.wrap(joined(whole, Arrays.copyOf(next, cut))), List.of());
            assertEquals(4, read(batches).size(), "cut at " + cut);
            assertEquals(44, batches.nextOffset());
        }
    }

    @Test
    void damageIsFoundAndNamed() {
        for (int at = Batches.CRC_AT; at < GOLDEN.get("lz4").length; at++) {
            byte[] damaged = GOLDEN.get("lz4").clone();
            damaged[at] ^= 1;
            IOException told = assertThrows(IOException.class, () -> read(damaged), "byte " + at);
            assertTrue(told.getMessage().contains("offset 40"), told.getMessage());
        }
        byte[] old = GOLDEN.get("none").clone();
        old[16] = 1;
        assertTrue(assertThrows(IOException.class, () -> read(old)).getMessage().contains("magic 1"));
    }

    /** A batch of garbage whose checksum is right: no exception but an IOException. */
    @Test
    void garbageIsAnIoException() throws IOException {
        for (int seed = 1; seed < 200; seed++) {
            byte[] batch = BatchWriter.batch(List.of(LogRecord.of(null, bytes(seed * 7))), Codec.NONE, TIME_MS);
            byte[] garbage = bytes(seed);
            System.arraycopy(garbage, 0, batch, Batches.HEADER_BYTES, Math.min(garbage.length, batch.length - 61));
            sealed(batch);
            try {
                read(batch);
            } catch (IOException told) {
                assertTrue(told.getMessage().contains("cannot be read"), told.getMessage());
            }
        }
    }

    @Test
    void recordsOfAbortedTransactionsArePassed() throws IOException {
        byte[] data = joined(
                transactional(40, 1, "aborted"),
                transactional(41, 2, "committed"),
                marker(42, 1, 0),
                marker(43, 2, 1),
                transactional(44, 1, "committed later"),
                at(BatchWriter.batch(List.of(LogRecord.of(null, utf8("plain"))), Codec.NONE, TIME_MS), 45),
                transactional(46, 2, "aborted too"),
                marker(47, 1, 1));
        List<Batches.Aborted> aborted = List.of(new Batches.Aborted(2, 46), new Batches.Aborted(1, 40));
        Batches batches = new Batches(ByteBuffer.wrap(data), aborted);
        List<String> found = read(batches).stream()
                .map(each -> new String(each.record().value(), StandardCharsets.UTF_8))
                .toList();
        assertEquals(List.of("committed", "committed later", "plain"), found);
        assertEquals(48, batches.nextOffset());
        assertFalse(batches.next());
    }

    private static byte[] transactional(long offset, long producer, String value) throws IOException {
        byte[] batch = BatchWriter.batch(List.of(LogRecord.of(null, utf8(value))), Codec.NONE, TIME_MS);
        return of(batch, offset, producer, 0x10);
    }

    private static byte[] marker(long offset, long producer, int type) throws IOException {
        byte[] key = {0, 0, 0, (byte) type};
        byte[] batch = BatchWriter.batch(List.of(LogRecord.of(key, new byte[6])), Codec.NONE, TIME_MS);
        return of(batch, offset, producer, 0x30);
    }

    private static byte[] of(byte[] batch, long offset, long producer, int attributes) {
        BatchWriter.stamp(batch, new ProducerId(producer, (short) 0), 0);
        batch[22] = (byte) attributes;
        return at(sealed(batch), offset);
    }

    private static byte[] sealed(byte[] batch) {
        CRC32C crc = new CRC32C();
        crc.update(batch, Batches.CRC_FROM, batch.length - Batches.CRC_FROM);
        ByteBuffer.wrap(batch).putInt(Batches.CRC_AT, (int) crc.getValue());
        return batch;
    }

    private static byte[] at(byte[] batch, long offset) {
        byte[] moved = batch.clone();
        ByteBuffer.wrap(moved).putLong(0, offset);
        return moved;
    }

    private static byte[] joined(byte[]... parts) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            all.write(part);
        }
        return all.toByteArray();
    }
}
