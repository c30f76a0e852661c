package io.raftlake.spark.log;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.function.BiConsumer;

/** Bytes of a request under way: Kafka's primitive types, in the flexible encoding (compact lengths, tagged fields). */
final class Out {
    private static final int FIRST_BYTES = 256;

    private byte[] bytes = new byte[FIRST_BYTES];
    private int size;

    int size() {
        return size;
    }

    ByteBuffer buffer() {
        return ByteBuffer.wrap(bytes, 0, size);
    }

    /** What stands in it, from its beginning to {@link #size}. */
    byte[] array() {
        return bytes;
    }

    void clear() {
        size = 0;
    }

    Out append(Out other) {
        return raw(other.bytes, 0, other.size);
    }

    private int room(int count) {
        if (bytes.length - size < count) {
            bytes = Arrays.copyOf(bytes, Math.max(size + count, 2 * bytes.length));
        }
        size += count;
        return size - count;
    }

    Out i8(int value) {
        int at = room(1);
        bytes[at] = (byte) value;
        return this;
    }

    Out i16(int value) {
        int at = room(2);
        ByteBuffer.wrap(bytes).putShort(at, (short) value);
        return this;
    }

    Out i32(int value) {
        int at = room(4);
        ByteBuffer.wrap(bytes).putInt(at, value);
        return this;
    }

    Out i64(long value) {
        int at = room(8);
        ByteBuffer.wrap(bytes).putLong(at, value);
        return this;
    }

    Out bool(boolean value) {
        return i8(value ? 1 : 0);
    }

    Out raw(byte[] from, int start, int count) {
        int at = room(count);
        System.arraycopy(from, start, bytes, at, count);
        return this;
    }

    Out uvarint(int value) {
        while ((value & ~0x7F) != 0) {
            i8(value & 0x7F | 0x80);
            value >>>= 7;
        }
        return i8(value);
    }

    /** As records have numbers: zigzag, so that small negative ones are short. */
    Out varint(int value) {
        return uvarint(value << 1 ^ value >> 31);
    }

    /** A record's field: its length, -1 for null, and its bytes. */
    Out field(byte[] value) {
        return value == null ? varint(-1) : varint(value.length).raw(value, 0, value.length);
    }

    /** May be null. */
    Out text(String value) {
        if (value == null) {
            return i8(0);
        }
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        return uvarint(utf8.length + 1).raw(utf8, 0, utf8.length);
    }

    Out bytes(byte[] value) {
        return uvarint(value.length + 1).raw(value, 0, value.length);
    }

    /** The uuid of zeros: none. */
    Out noId() {
        return i64(0).i64(0);
    }

    /** Each item with its fields, and the tagged fields behind them, which are none. */
    <T> Out array(Collection<T> items, BiConsumer<Out, T> fields) {
        uvarint(items.size() + 1);
        items.forEach(item -> {
            fields.accept(this, item);
            noTags();
        });
        return this;
    }

    /** A compact array of texts. */
    Out texts(Collection<String> items) {
        uvarint(items.size() + 1);
        items.forEach(this::text);
        return this;
    }

    Out noTags() {
        return i8(0);
    }
}
