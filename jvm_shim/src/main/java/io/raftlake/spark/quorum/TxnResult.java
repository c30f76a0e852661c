package io.raftlake.spark.quorum;

import java.util.List;
import java.util.Map;

/**
 * What became of a transaction: it happened at {@code version}, or it did not, because of {@code inTheWay}: names of keys and
 * prefixes whose compares failed, or of {@code refused}: by producer id, why its transaction cannot end so. {@code version} is 0
 * where the transaction did not happen, and where only its effect was read back.
 */
public record TxnResult(boolean succeeded, long version, List<String> inTheWay, Map<Long, String> refused) {
    public static TxnResult happened(long version) {
        return new TxnResult(true, version, List.of(), Map.of());
    }

    public static TxnResult refused(List<String> inTheWay) {
        return refused(inTheWay, Map.of());
    }

    public static TxnResult refused(List<String> inTheWay, Map<Long, String> producers) {
        return new TxnResult(false, 0, List.copyOf(inTheWay), Map.copyOf(producers));
    }
}
