package io.raftlake.spark.quorum;

import java.util.List;

/**
 * What became of a transaction: it happened at {@code version}, or it did not, because of {@code inTheWay}: names of keys
 * and prefixes whose compares failed. {@code version} is 0 where the transaction did not happen, and where only its
 * effect was read back.
 */
public record TxnResult(boolean succeeded, long version, List<String> inTheWay) {
    public static TxnResult happened(long version) {
        return new TxnResult(true, version, List.of());
    }

    public static TxnResult refused(List<String> inTheWay) {
        return new TxnResult(false, 0, List.copyOf(inTheWay));
    }
}
