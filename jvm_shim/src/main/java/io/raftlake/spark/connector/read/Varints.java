package io.raftlake.spark.connector.read;

/** A place in an array of bytes, and the zigzag numbers of records that are read from there. For one thread. */
final class Varints {
    byte[] bytes;
    int at;

    /** From {@code at} on, which moves behind the number. ArrayIndexOutOfBoundsException where the bytes end before it. */
    int varint() {
        int next = bytes[at++];
        if (next >= 0) {
            return next >>> 1 ^ -(next & 1);
        }
        int value = next & 0x7F;
        for (int shift = 7; next < 0 && shift <= 28; shift += 7) {
            next = bytes[at++];
            value |= (next & 0x7F) << shift;
        }
        return value >>> 1 ^ -(value & 1);
    }

    /** The same of 64 bits. */
    long varlong() {
        long next = bytes[at++];
        long value = next & 0x7F;
        for (int shift = 7; next < 0 && shift <= 63; shift += 7) {
            next = bytes[at++];
            value |= (next & 0x7F) << shift;
        }
        return value >>> 1 ^ -(value & 1);
    }
}
