package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.Columns;
import io.raftlake.spark.connector.TopicPartition;
import io.raftlake.spark.kit.BatchBytes;
import io.raftlake.spark.log.Batches;
import io.raftlake.spark.log.RangeFetches.Got;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class RecordDecoderTest {
    private static final StructType ALL = Columns.ofSource(true);
    private static final TopicPartition AT = new TopicPartition("t", 3);

    private final List<Integer> blocks = new ArrayList<>();
    private long next;

    private static Got got(byte[]... batches) {
        return got(List.of(), batches);
    }

    private static Got got(List<Batches.Aborted> aborted, byte[]... batches) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        // Fetched bytes do not begin where their array does.
        all.writeBytes(new byte[7]);
        for (byte[] batch : batches) {
            all.writeBytes(batch);
        }
        return new Got(ByteBuffer.wrap(all.toByteArray(), 7, all.size() - 7).slice(), aborted, 1);
    }

    /** The rows as texts; columns that are null have a dash. */
    private List<String> rows(Got got, long start, long end, StructType columns) throws IOException {
        RecordBlock block = new RecordBlock(columns, AT);
        RecordDecoder decoder = new RecordDecoder(got, start, end, block);
        List<String> rows = new ArrayList<>();
        while (decoder.fill()) {
            blocks.add(block.rows());
            Iterator<InternalRow> left = block.batch().rowIterator();
            left.forEachRemaining(row -> rows.add(text(row, columns)));
        }
        next = decoder.next();
        return rows;
    }

    private static String text(InternalRow row, StructType columns) {
        List<String> parts = new ArrayList<>();
        for (int index = 0; index < columns.length(); index++) {
            String name = columns.fieldNames()[index];
            parts.add(row.isNullAt(index) ? "-" : switch (name) {
                case "key", "value" -> new String(row.getBinary(index), StandardCharsets.UTF_8);
                case "topic" -> row.getUTF8String(index).toString();
                case "partition", "timestampType" -> Integer.toString(row.getInt(index));
                case "headers" -> headers((ColumnarArray) row.getArray(index));
                default -> Long.toString(row.getLong(index));
            });
        }
        return String.join(" ", parts);
    }

    private static String headers(ColumnarArray headers) {
        StringBuilder text = new StringBuilder();
        for (int index = 0; index < headers.numElements(); index++) {
            InternalRow header = headers.getStruct(index, 2);
            String value = header.isNullAt(1) ? "-" : new String(header.getBinary(1), StandardCharsets.UTF_8);
            text.append(header.getUTF8String(0)).append('=').append(value).append(',');
        }
        return text.toString();
    }

    private static StructType only(String... names) {
        StructType columns = new StructType();
        for (String name : names) {
            columns = columns.add(ALL.apply(name));
        }
        return columns;
    }

    @Test
    void everythingThatARecordCanHave() throws IOException {
        byte[] batch = new BatchBytes(100).at(5, false).add(0, "k", "v", "h", "1", "é", null).add(1, null, "")
                .add(300, "", null).bytes();
        assertEquals(List.of("k v t 3 100 5000 0 h=1,é=-,", "-  t 3 101 6000 0 -", " - t 3 400 305000 0 -"),
                rows(got(batch), 0, 1_000, ALL));
        assertEquals(401, next);
        assertEquals(List.of(3), blocks);
    }

    @Test
    void onlyOffsetsOfTheRange() throws IOException {
        byte[] one = new BatchBytes(10).add(0, null, "a").add(1, null, "b").add(2, null, "c").bytes();
        byte[] two = new BatchBytes(13).add(0, null, "d").bytes();
        byte[] behind = new BatchBytes(20).add(0, null, "e").bytes();
        assertEquals(List.of("b", "c", "d"), rows(got(one, two, behind), 11, 15, only("value")));
        assertEquals(15, next, "nothing lies between the last batch and the end");
        assertEquals(List.of("12"), rows(got(one), 12, 13, only("offset")));
        assertEquals(13, next);
        assertEquals(List.of(), rows(got(one), 13, 20, only("offset")));
    }

    @Test
    void batchesAreCountedWhereNoBytesAreAskedFor() throws IOException {
        byte[] dense = new BatchBytes(10).at(7, true).add(0, null, "a").add(1, null, "b").gzipped();
        byte[] withGaps = new BatchBytes(12).at(7, true).add(0, null, "c").add(5, null, "d").upTo(7).bytes();
        assertEquals(List.of("", "", ""), rows(got(dense, withGaps), 11, 100, only()));
        assertEquals(20, next);
        assertEquals(List.of(""), rows(got(dense, withGaps), 10, 11, only()), "not of the next task");
        assertEquals(List.of("11"), rows(got(dense, withGaps), 11, 12, only("offset")));
        assertEquals(List.of("10 7000 1", "11 7000 1", "12 7000 1", "17 7000 1"),
                rows(got(dense, withGaps), 0, 100, only("offset", "timestamp", "timestampType")));
    }

    @Test
    void batchesThatAreCompressedAreGathered() throws IOException {
        String large = "x".repeat(9 << 20);
        byte[] plain = new BatchBytes(0).add(0, null, "a").bytes();
        byte[] one = new BatchBytes(1).add(0, null, "b").gzipped();
        byte[] two = new BatchBytes(2).add(0, "c", large).gzipped();
        byte[] three = new BatchBytes(3).add(0, "d", large).gzipped();
        List<String> keys = rows(got(plain, one, two, three, plain), 0, 100, only("key", "offset"));
        assertEquals(List.of("- 0", "- 1", "c 2", "d 3"), keys);
        assertEquals(List.of(1, 2, 1), blocks, "a block holds bytes of one array, and not too many");
    }

    @Test
    void blocksHaveOneKindOfTime() throws IOException {
        byte[] created = new BatchBytes(0).at(1, false).add(0, null, "a").bytes();
        byte[] appended = new BatchBytes(1).at(2, true).add(0, null, "b").bytes();
        assertEquals(List.of("1000 0", "2000 1"), rows(got(created, appended), 0, 9, only("timestamp", "timestampType")));
    }

    @Test
    void markersAndAbortedTransactionsAreLeftOut() throws IOException {
        byte[] aborted = new BatchBytes(0).transactional(7).add(0, null, "aborted").bytes();
        byte[] abort = new BatchBytes(1).transactional(7).marker(false).bytes();
        byte[] committed = new BatchBytes(2).transactional(7).add(0, null, "committed").bytes();
        byte[] commit = new BatchBytes(3).transactional(7).marker(true).bytes();
        Got got = got(List.of(new Batches.Aborted(7, 0)), aborted, abort, committed, commit);
        assertEquals(List.of("committed"), rows(got, 0, 9, only("value")));
        assertEquals(4, next);
        assertEquals(List.of("aborted", "committed"), rows(got(aborted, abort, committed, commit), 0, 9, only("value")));
    }

    @Test
    void damageIsFoundBeforeItsRowsAreHandedOut() throws IOException {
        byte[] sound = new BatchBytes(0).add(0, null, "a").bytes();
        byte[] damaged = new BatchBytes(1).add(0, null, "b").bytes();
        damaged[damaged.length - 1] ^= 1;
        RecordBlock block = new RecordBlock(ALL, AT);
        RecordDecoder decoder = new RecordDecoder(got(sound, damaged), 0, 9, block);
        assertTrue(assertThrows(IOException.class, decoder::fill).getMessage().contains("the batch at offset 1 is damaged"));
        assertEquals(0, decoder.next(), "the rows of the sound batch are read again");
    }

    @Test
    void aPieceOfABatchAtTheEndIsLeftOut() throws IOException {
        byte[] whole = new BatchBytes(4).add(0, null, "a").bytes();
        byte[] piece = Arrays.copyOf(new BatchBytes(5).add(0, null, "b").bytes(), 65);
        assertEquals(List.of("a"), rows(got(whole, piece), 0, 9, only("value")));
        assertEquals(5, next);
        assertEquals(5, Batches.endOffset(got(whole, piece).data(), 9));
        assertEquals(-1, Batches.endOffset(got(whole).data(), 4));
        assertEquals(4, Batches.firstOffset(got(whole, piece).data()));
        assertEquals(-1, Batches.firstOffset(got(piece).data()));
        assertFalse(new RecordDecoder(got(), 0, 9, new RecordBlock(ALL, AT)).fill());
    }

    @Test
    void numbersOfAllLengths() {
        Varints in = new Varints();
        in.bytes = new byte[] {1, (byte) 0x80, 1, (byte) 0xFE, (byte) 0xFF, (byte) 0xFF, (byte) 0xFF, 0x0F,
            -1, -1, -1, -1, -1, -1, -1, -1, -1, 1};
        assertEquals(List.of(-1, 64, Integer.MAX_VALUE), List.of(in.varint(), in.varint(), in.varint()));
        assertEquals(Long.MIN_VALUE, in.varlong());
        assertThrows(ArrayIndexOutOfBoundsException.class, in::varint);
    }
}
