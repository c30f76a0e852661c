package io.raftlake.spark.log;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Bytes of an answer: Kafka's primitive types, in the flexible encoding. What does not fit throws {@link Malformed}. */
final class In {
    /** The bytes are not what they should be. */
    static final class Malformed extends RuntimeException {
        private static final long serialVersionUID = 1;

        Malformed(String told) {
            super(told);
        }
    }

    /** How one message, or one item of an array, is read. */
    @FunctionalInterface
    interface Reading<T> {
        T read(In in);
    }

    /** The same of an answer: {@link Lost} where the bytes are none. The request may have been heard. */
    static <T> T answer(ByteBuffer from, String what, Reading<T> reading) throws Lost {
        try {
            return read(from, what, reading);
        } catch (IOException damaged) {
            throw new Lost(damaged.getMessage(), true, damaged);
        }
    }

    private final ByteBuffer from;

    In(ByteBuffer from) {
        this.from = from;
    }

    /** What the bytes are; an IOException where they are none. */
    static <T> T read(ByteBuffer from, String what, Reading<T> reading) throws IOException {
        try {
            return reading.read(new In(from));
        } catch (BufferUnderflowException | Malformed damaged) {
            String told = damaged.getMessage() == null ? "it ends early" : damaged.getMessage();
            throw new IOException(what + " cannot be read: " + told, damaged);
        }
    }

    int i8() {
        return from.get();
    }

    short i16() {
        return from.getShort();
    }

    int i32() {
        return from.getInt();
    }

    long i64() {
        return from.getLong();
    }

    boolean bool() {
        return from.get() != 0;
    }

    Code code() {
        return Code.of(from.getShort());
    }

    int uvarint() {
        long value = 0;
        for (int shift = 0; shift <= 28; shift += 7) {
            int next = from.get();
            value |= (long) (next & 0x7F) << shift;
            if (next >= 0) {
                if (value > 0xFFFFFFFFL) {
                    break;
                }
                return (int) value;
            }
        }
        throw new Malformed("a number has more than 32 bits");
    }

    /** Zigzag. */
    int varint() {
        int value = uvarint();
        return value >>> 1 ^ -(value & 1);
    }

    /** Zigzag, of 64 bits. */
    long varlong() {
        long value = 0;
        for (int shift = 0; shift <= 63; shift += 7) {
            int next = from.get();
            value |= (long) (next & 0x7F) << shift;
            if (next >= 0) {
                return value >>> 1 ^ -(value & 1);
            }
        }
        throw new Malformed("a number has more than 64 bits");
    }

    /** The next bytes, not copied; null where the length is -1. */
    ByteBuffer slice(int length) {
        if (length == -1) {
            return null;
        }
        if (length < 0 || length > from.remaining()) {
            throw new Malformed("a field of " + length + " bytes, where " + from.remaining() + " are left");
        }
        ByteBuffer slice = from.slice(from.position(), length);
        from.position(from.position() + length);
        return slice;
    }

    /** A record's field. */
    byte[] field() {
        ByteBuffer slice = slice(varint());
        if (slice == null) {
            return null;
        }
        byte[] copy = new byte[slice.remaining()];
        slice.get(copy);
        return copy;
    }

    /** The next bytes, not copied, which must not be null. */
    ByteBuffer piece(int length) {
        ByteBuffer piece = slice(length);
        if (piece == null) {
            throw new Malformed("a field is null that must not be");
        }
        return piece;
    }

    /** Compact bytes, not copied; may be null. */
    ByteBuffer bytes() {
        return slice(uvarint() - 1);
    }

    /** Compact text; may be null. */
    String text() {
        ByteBuffer slice = bytes();
        return slice == null ? null : StandardCharsets.UTF_8.decode(slice).toString();
    }

    /** The items of a compact array, each with its tagged fields behind it; none for null. */
    <T> List<T> array(Reading<T> item) {
        int count = uvarint() - 1;
        if (count > from.remaining()) {
            throw new Malformed("an array of " + count + " items, where " + from.remaining() + " bytes are left");
        }
        List<T> items = new ArrayList<>(Math.max(0, count));
        for (int index = 0; index < count; index++) {
            items.add(item.read(this));
            skipTags();
        }
        return items;
    }

    /** The numbers of a compact array of i32. */
    List<Integer> numbers() {
        int count = uvarint() - 1;
        if (count > from.remaining() / 4) {
            throw new Malformed("an array of " + count + " numbers, where " + from.remaining() + " bytes are left");
        }
        List<Integer> numbers = new ArrayList<>(Math.max(0, count));
        for (int index = 0; index < count; index++) {
            numbers.add(i32());
        }
        return numbers;
    }

    /** The items of a compact array of texts. */
    List<String> texts() {
        int count = uvarint() - 1;
        if (count > from.remaining()) {
            throw new Malformed("an array of " + count + " texts, where " + from.remaining() + " bytes are left");
        }
        List<String> texts = new ArrayList<>(Math.max(0, count));
        for (int index = 0; index < count; index++) {
            texts.add(text());
        }
        return texts;
    }

    void skipTags() {
        for (int left = uvarint(); left > 0; left--) {
            uvarint();
            slice(uvarint());
        }
    }
}
