package io.raftlake.spark.kit;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32C;
import java.util.zip.GZIPOutputStream;

/** Record batches of format v2, written out by hand: any offsets, times, and kinds. */
public final class BatchBytes {
    private final ByteArrayOutputStream records = new ByteArrayOutputStream();
    private final long base;
    private int attributes;
    private int count;
    private int lastDelta;
    private long producer = -1;
    private long timeMs;

    public BatchBytes(long base) {
        this.base = base;
    }

    /** Times count from here; with log append time they are this one. */
    public BatchBytes at(long ms, boolean isAppendTime) {
        timeMs = ms;
        attributes |= isAppendTime ? 0x08 : 0;
        return this;
    }

    public BatchBytes transactional(long id) {
        producer = id;
        attributes |= 0x10;
        return this;
    }

    /** A record so many offsets behind the base, and as many ms later. Headers are keys and values in turn; null is null. */
    public BatchBytes add(int delta, String key, String value, String... headers) {
        ByteArrayOutputStream record = new ByteArrayOutputStream();
        record.write(0);
        varint(record, delta);
        varint(record, delta);
        field(record, key);
        field(record, value);
        varint(record, headers.length / 2);
        for (String part : headers) {
            field(record, part);
        }
        varint(records, record.size());
        records.writeBytes(record.toByteArray());
        count++;
        lastDelta = delta;
        return this;
    }

    /** A marker that ends the transaction of its producer. */
    public BatchBytes marker(boolean isCommit) {
        attributes |= 0x20;
        ByteArrayOutputStream record = new ByteArrayOutputStream();
        record.writeBytes(new byte[] {0, 0, 0, 8, 0, 0, 0, (byte) (isCommit ? 1 : 0), 12, 0, 0, 0, 0, 0, 0, 0});
        varint(records, record.size());
        records.writeBytes(record.toByteArray());
        count = 1;
        return this;
    }

    /** The offset of the last record, where others behind it were compacted away. */
    public BatchBytes upTo(int delta) {
        lastDelta = delta;
        return this;
    }

    public byte[] bytes() {
        return bytes(records.toByteArray());
    }

    public byte[] gzipped() throws IOException {
        ByteArrayOutputStream compressed = new ByteArrayOutputStream();
        try (GZIPOutputStream gzip = new GZIPOutputStream(compressed)) {
            gzip.write(records.toByteArray());
        }
        attributes |= 1;
        return bytes(compressed.toByteArray());
    }

    private byte[] bytes(byte[] payload) {
        ByteBuffer batch = ByteBuffer.allocate(61 + payload.length);
        batch.putLong(base).putInt(batch.capacity() - 12).putInt(0).put((byte) 2).putInt(0).putShort((short) attributes);
        batch.putInt(lastDelta).putLong(timeMs).putLong(timeMs).putLong(producer).putShort((short) 0).putInt(0).putInt(count);
        batch.put(payload);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), 21, batch.capacity() - 21);
        batch.putInt(17, (int) crc.getValue());
        return batch.array();
    }

    private static void field(ByteArrayOutputStream out, String text) {
        byte[] utf8 = text == null ? null : text.getBytes(StandardCharsets.UTF_8);
        varint(out, utf8 == null ? -1 : utf8.length);
        if (utf8 != null) {
            out.writeBytes(utf8);
        }
    }

    private static void varint(ByteArrayOutputStream out, int value) {
        int left = value << 1 ^ value >> 31;
        while ((left & ~0x7F) != 0) {
            out.write(left & 0x7F | 0x80);
            left >>>= 7;
        }
        out.write(left);
    }
}
