package io.raftlake.spark.connector.write;

import java.util.Arrays;

/** Encoded records of one partition, as batches of format v2 hold them, until they are worth a batch. */
final class RecordBuffer {
    private static final int FIRST_BYTES = 16 << 10;

    /** Of a record beside its fields: attributes, and the difference of its time to the batch's, which is none. */
    private static final int HEAD_BYTES = 2;

    private byte[] bytes = new byte[FIRST_BYTES];
    private int size;
    private int count;

    int size() {
        return size;
    }

    int count() {
        return count;
    }

    /** What stands in it, from its beginning to {@link #size}. */
    byte[] array() {
        return bytes;
    }

    void clear() {
        size = 0;
        count = 0;
    }

    /** How many bytes the record takes at most. */
    static long bytesMax(Field key, Field value, Headers headers) {
        return 32L + Math.max(0, key.length()) + Math.max(0, value.length()) + headers.bytes();
    }

    void add(Field key, Field value, Headers headers) {
        int length = HEAD_BYTES + varintBytes(count) + fieldBytes(key) + fieldBytes(value) + headers.bytes();
        room(length + 5);
        varint(length);
        bytes[size++] = 0;
        bytes[size++] = 0;
        varint(count++);
        field(key);
        field(value);
        size = headers.copyTo(bytes, size);
    }

    private void room(int more) {
        if (bytes.length - size < more) {
            bytes = Arrays.copyOf(bytes, Math.max(size + more, 2 * bytes.length));
        }
    }

    private void field(Field field) {
        varint(field.length());
        if (!field.isNull()) {
            field.copyTo(bytes, size);
            size += field.length();
        }
    }

    private static int fieldBytes(Field field) {
        return varintBytes(field.length()) + Math.max(0, field.length());
    }

    /** Zigzag. */
    private void varint(int value) {
        int left = value << 1 ^ value >> 31;
        while ((left & ~0x7F) != 0) {
            bytes[size++] = (byte) (left & 0x7F | 0x80);
            left >>>= 7;
        }
        bytes[size++] = (byte) left;
    }

    static int varintBytes(int value) {
        int left = value << 1 ^ value >> 31;
        return left == 0 ? 1 : (38 - Integer.numberOfLeadingZeros(left)) / 7;
    }
}
