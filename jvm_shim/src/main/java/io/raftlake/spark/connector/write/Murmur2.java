package io.raftlake.spark.connector.write;

import org.apache.spark.unsafe.Platform;

/** MurmurHash2 of 32 bits with the seed of Kafka's default partitioner, over bytes wherever they are. */
final class Murmur2 {
    private static final int SEED = 0x9747B28C;
    private static final int M = 0x5BD1E995;
    private static final boolean IS_LITTLE = java.nio.ByteOrder.nativeOrder() == java.nio.ByteOrder.LITTLE_ENDIAN;

    private Murmur2() {}

    /** {@code base} and {@code offset} as {@link Platform} takes them. */
    static int hash(Object base, long offset, int length) {
        int hash = SEED ^ length;
        int whole = length & ~3;
        for (int at = 0; at < whole; at += 4) {
            int word = Platform.getInt(base, offset + at);
            word = (IS_LITTLE ? word : Integer.reverseBytes(word)) * M;
            word ^= word >>> 24;
            hash = hash * M ^ word * M;
        }
        if (length > whole) {
            for (int at = whole; at < length; at++) {
                hash ^= (Platform.getByte(base, offset + at) & 0xFF) << 8 * (at - whole);
            }
            hash *= M;
        }
        hash ^= hash >>> 13;
        hash *= M;
        return hash ^ hash >>> 15;
    }

    /** The partition of a key, as Kafka's default partitioner chooses it. */
    static int partition(Object base, long offset, int length, int partitions) {
        return (hash(base, offset, length) & Integer.MAX_VALUE) % partitions;
    }
}
