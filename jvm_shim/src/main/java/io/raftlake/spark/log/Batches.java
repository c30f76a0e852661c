package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Header;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Numbered;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.zip.CRC32C;

/**
 * Walks over fetched record batches of format v2: {@link #next} goes to the next one with records that count. Control batches,
 * and those of aborted transactions, are passed. The checksum of each batch is compared before anything of it is handed out.
 *
 * <p>{@link #records} are the bytes of the records of one batch, decompressed, for those who decode them into columns; {@link
 * #forEach} decodes them into objects.
 */
public final class Batches {
    /** An aborted transaction with records in an answer: its producer, and where it began. */
    public record Aborted(long producerId, long firstOffset) {}

    static final int HEADER_BYTES = 61;

    /** Base offset and length, which the length does not count. */
    static final int PREFIX_BYTES = 12;

    static final int CRC_AT = 17;
    static final int CRC_FROM = 21;
    static final int PRODUCER_ID_AT = 43;
    static final int PRODUCER_EPOCH_AT = 51;
    static final int BASE_SEQUENCE_AT = 53;

    private static final int MAGIC_AT = 16;
    static final int ATTRIBUTES_AT = 21;
    private static final int LAST_DELTA_AT = 23;
    private static final int BASE_TIMESTAMP_AT = 27;
    private static final int MAX_TIMESTAMP_AT = 35;
    private static final int COUNT_AT = 57;
    private static final int MAGIC = 2;
    private static final int LOG_APPEND_TIME = 0x08;
    static final int TRANSACTIONAL = 0x10;
    private static final int CONTROL = 0x20;
    private static final int ABORT_MARKER = 0;

    private final ByteBuffer data;
    private final List<Aborted> waiting;
    private final Set<Long> aborted = new HashSet<>();
    private int start;
    private int end;
    private long nextOffset = -1;
    private ByteBuffer content;

    /** {@code data} begins with a batch; a piece of one at its end is left out. */
    public Batches(ByteBuffer data, List<Aborted> aborted) {
        this.data = data.slice();
        this.waiting = new ArrayList<>(aborted);
        waiting.sort(Comparator.comparingLong(Aborted::firstOffset));
    }

    /** The offset at which the first batch begins; -1 where no batch is whole. */
    public static long firstOffset(ByteBuffer data) {
        return endOffset(data, Long.MAX_VALUE) < 0 ? -1 : data.getLong(data.position());
    }

    /**
     * The offset behind the last whole batch that begins below {@code limit}; -1 where there is none. Headers are looked at
     * alone, and not checked.
     */
    public static long endOffset(ByteBuffer data, long limit) {
        long found = -1;
        int at = data.position();
        while (data.limit() - at >= HEADER_BYTES) {
            long length = data.getInt(at + 8);
            long base = data.getLong(at);
            if (length < HEADER_BYTES - PREFIX_BYTES || length > data.limit() - at - PREFIX_BYTES || base >= limit) {
                break;
            }
            found = base + data.getInt(at + LAST_DELTA_AT) + 1;
            at += PREFIX_BYTES + (int) length;
        }
        return found;
    }

    /** Goes to the next batch with records; false at the end. */
    public boolean next() throws IOException {
        content = null;
        while (hasWhole()) {
            requireSound();
            nextOffset = lastOffset() + 1;
            boolean isOfAborted = isOfAborted();
            if ((attributes() & CONTROL) != 0 || isOfAborted || count() == 0) {
                continue;
            }
            return true;
        }
        return false;
    }

    private boolean hasWhole() throws IOException {
        start = end;
        if (data.limit() - start < HEADER_BYTES) {
            return false;
        }
        int length = data.getInt(start + 8);
        if (length < HEADER_BYTES - PREFIX_BYTES) {
            throw damaged("it claims " + length + " bytes, less than its header");
        }
        if (length > data.limit() - start - PREFIX_BYTES) {
            return false;
        }
        end = start + PREFIX_BYTES + length;
        return true;
    }

    private void requireSound() throws IOException {
        if (data.get(start + MAGIC_AT) != MAGIC) {
            throw damaged("it has magic " + data.get(start + MAGIC_AT) + ", and only 2 is supported");
        }
        CRC32C crc = new CRC32C();
        crc.update(data.slice(start + CRC_FROM, end - start - CRC_FROM));
        if ((int) crc.getValue() != data.getInt(start + CRC_AT)) {
            throw damaged("its checksum is wrong");
        }
        if (count() < 0 || data.getInt(start + LAST_DELTA_AT) < count() - 1) {
            throw damaged("it says " + count() + " records up to " + data.getInt(start + LAST_DELTA_AT));
        }
    }

    /** As Kafka's consumers find it out: from where the transaction began to the marker that aborts it. */
    private boolean isOfAborted() throws IOException {
        while (!waiting.isEmpty() && waiting.get(0).firstOffset() <= lastOffset()) {
            aborted.add(waiting.remove(0).producerId());
        }
        long producer = data.getLong(start + PRODUCER_ID_AT);
        if (!aborted.contains(producer) || (attributes() & TRANSACTIONAL) == 0) {
            return false;
        }
        if ((attributes() & CONTROL) == 0) {
            return true;
        }
        ByteBuffer key = In.read(records(), "a marker at offset " + baseOffset(), in -> {
            in.varint();
            in.i8();
            in.varlong();
            in.varint();
            return in.slice(in.varint());
        });
        if (key != null && key.remaining() >= 4 && key.getShort(2) == ABORT_MARKER) {
            aborted.remove(producer);
        }
        content = null;
        return false;
    }

    private IOException damaged(String reason) {
        return new IOException("the batch at offset " + baseOffset() + " is damaged: " + reason);
    }

    private int attributes() {
        return data.getShort(start + ATTRIBUTES_AT);
    }

    public long baseOffset() {
        return data.getLong(start);
    }

    public long lastOffset() {
        return baseOffset() + data.getInt(start + LAST_DELTA_AT);
    }

    /** How many records it has; fewer than offsets where compaction took some. */
    public int count() {
        return data.getInt(start + COUNT_AT);
    }

    /** Whether {@link #records} makes an array of its own. */
    public boolean isCompressed() throws IOException {
        return Codec.of(attributes()) != Codec.NONE;
    }

    /** What the times of records are counted from, in ms since 1970. */
    public long baseTimestampMs() {
        return data.getLong(start + BASE_TIMESTAMP_AT);
    }

    /** Whether {@link #maxTimestampMs} is the time of all records. */
    public boolean hasLogAppendTime() {
        return (attributes() & LOG_APPEND_TIME) != 0;
    }

    public long maxTimestampMs() {
        return data.getLong(start + MAX_TIMESTAMP_AT);
    }

    /** Behind all that was passed so far, batches without records that count too; -1 before the first one. */
    public long nextOffset() {
        return nextOffset;
    }

    /** The records of this batch, decompressed; position 0 is the first one's length. */
    public ByteBuffer records() throws IOException {
        if (content == null) {
            ByteBuffer payload = data.slice(start + HEADER_BYTES, end - start - HEADER_BYTES);
            try {
                content = Codec.of(attributes()).decompress(payload, Codec.DECOMPRESSED_BYTES_MAX);
            } catch (IOException error) {
                throw damaged(error.getMessage());
            }
        }
        return content.duplicate();
    }

    /** The records of this batch. */
    public void forEach(Consumer<Numbered> consumer) throws IOException {
        In.read(records(), "the batch at offset " + baseOffset(), in -> {
            for (int left = count(); left > 0; left--) {
                consumer.accept(record(new In(in.piece(in.varint()))));
            }
            return null;
        });
    }

    private Numbered record(In in) {
        in.i8();
        long timestamp = baseTimestampMs() + in.varlong();
        long offset = baseOffset() + in.varint();
        byte[] key = in.field();
        byte[] value = in.field();
        int count = in.varint();
        List<Header> headers = count == 0 ? List.of() : new ArrayList<>();
        for (int index = 0; index < count; index++) {
            headers.add(new Header(StandardCharsets.UTF_8.decode(in.piece(in.varint())).toString(), in.field()));
        }
        return new Numbered(offset, hasLogAppendTime() ? maxTimestampMs() : timestamp, new LogRecord(key, value, headers));
    }
}
