package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Small files whose deletion happens with the next file that the same writer puts, and costs no transaction of its own. Each is
 * deleted at the version at which it was put here: one that another writer changed or deleted meanwhile counts as that writer's.
 */
final class LateDeletions {
    /** With so many the deletions wait no longer. */
    static final int FILES_MAX = 16;

    /** Versions by key, in the order of their deletion. */
    private final Map<String, Long> waiting = new LinkedHashMap<>();

    /** True where no more should wait. */
    synchronized boolean add(Location at, long version) {
        waiting.put(at.key(), version);
        return waiting.size() >= FILES_MAX;
    }

    synchronized boolean holds(Location at) {
        return waiting.containsKey(at.key());
    }

    /** Adds all that wait to a transaction, but for the file that the transaction is about. What was added. */
    synchronized Map<String, Long> addTo(Txn txn, Location file) {
        Map<String, Long> added = new LinkedHashMap<>(waiting);
        if (file != null) {
            added.remove(file.key());
        }
        added.forEach((key, version) -> txn.compare(key, version).delete(key));
        return added;
    }

    /** What the quorum said to a transaction with these. Those that others changed are theirs. */
    synchronized void answered(Map<String, Long> added, TxnResult result) {
        Map<String, Long> ended = new HashMap<>(added);
        if (!result.succeeded()) {
            ended.keySet().retainAll(result.inTheWay());
        }
        ended.forEach(waiting::remove);
    }
}
