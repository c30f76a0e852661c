package io.raftlake.spark.quorum;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A transaction: compares that must all hold, then operations that happen together. Built by chained calls, then committed. */
public final class Txn {
    /** What must hold. */
    public sealed interface Compare {
        /** {@code key} stands at {@code version}; {@link KeySpace#ABSENT}: it does not exist. */
        record Key(String key, long version) implements Compare {}

        /** No key that begins with {@code prefix} stands at a version above {@code newest}; 0: there is no such key. */
        record Prefix(String prefix, long newest) implements Compare {}
    }

    /** What happens. */
    public sealed interface Op {
        /** Sets a key. */
        record Put(String key, byte[] value) implements Op {}

        /** Deletes a key, which need not exist. */
        record Delete(String key) implements Op {}

        /** Deletes every key that begins with {@code prefix}, at most {@link KeySpace#RANGE_KEYS_MAX} keys. */
        record DeletePrefix(String prefix) implements Op {}

        /** Commits or aborts the transaction of a producer, which has to be open with this very epoch. */
        record EndTxn(long producerId, short epoch, boolean commit) implements Op {}
    }

    private final List<Compare> compares = new ArrayList<>();
    private final List<Op> ops = new ArrayList<>();

    public Txn compare(String key, long version) {
        compares.add(new Compare.Key(key, version));
        return this;
    }

    public Txn comparePrefix(String prefix, long newest) {
        compares.add(new Compare.Prefix(prefix, newest));
        return this;
    }

    public Txn put(String key, byte[] value) {
        ops.add(new Op.Put(key, value));
        return this;
    }

    public Txn delete(String key) {
        ops.add(new Op.Delete(key));
        return this;
    }

    public Txn deletePrefix(String prefix) {
        ops.add(new Op.DeletePrefix(prefix));
        return this;
    }

    public Txn endTxn(long producerId, short epoch, boolean commit) {
        ops.add(new Op.EndTxn(producerId, epoch, commit));
        return this;
    }

    public List<Compare> compares() {
        return Collections.unmodifiableList(compares);
    }

    public List<Op> ops() {
        return Collections.unmodifiableList(ops);
    }

    /** The first key that it touches, for texts of errors. */
    public String subject() {
        Op first = ops.stream().filter(op -> !(op instanceof Op.EndTxn)).findFirst().orElse(null);
        if (first instanceof Op.Put put) {
            return put.key();
        }
        if (first instanceof Op.Delete delete) {
            return delete.key();
        }
        if (first instanceof Op.DeletePrefix range) {
            return range.prefix();
        }
        return ops.isEmpty() ? "nothing" : "of producer " + ((Op.EndTxn) ops.get(0)).producerId();
    }
}
