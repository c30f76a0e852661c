package io.raftlake.spark.kit;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Keys;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** The key-value space in memory, with the bounds and the refusals of a node. */
public final class MemoryKeySpace implements KeySpace {
    /** A page with values ends after so many bytes, as a node's does. */
    static final long PAGE_BYTES_MAX = 8 << 20;

    private final TreeMap<String, Entry> entries = new TreeMap<>(Keys.ORDER);
    private final List<Txn.Op.EndTxn> ends = new ArrayList<>();
    private final Map<Long, String> refusals = new TreeMap<>();
    private final Map<String, Long> reads = new HashMap<>();
    private long version = 10;

    @Override
    public synchronized Optional<Entry> get(String key) {
        reads.merge(key, 1L, Long::sum);
        return Optional.ofNullable(entries.get(key));
    }

    /** How often a key was asked for, or a list of keys, in whose name this stands: other threads ask for keys of other tests. */
    public synchronized long reads(String part) {
        return reads.entrySet().stream().filter(asked -> asked.getKey().contains(part)).mapToLong(Map.Entry::getValue).sum();
    }

    public synchronized List<String> keys(String prefix) {
        return entries.tailMap(prefix).keySet().stream().takeWhile(key -> key.startsWith(prefix)).toList();
    }

    @Override
    public synchronized Page list(ListRequest request) {
        reads.merge(request.prefix(), 1L, Long::sum);
        List<Entry> rows = new ArrayList<>();
        List<String> prefixes = new ArrayList<>();
        long bytes = 0;
        String from = request.after() == null ? request.prefix() : request.after();
        for (String key : entries.tailMap(from, request.after() == null).keySet()) {
            if (!key.startsWith(request.prefix())) {
                if (Keys.ORDER.compare(key, request.prefix()) > 0) {
                    break;
                }
                continue;
            }
            int cut = request.delimiter() == null ? -1 : key.indexOf(request.delimiter(), request.prefix().length());
            String deeper = cut < 0 ? null : key.substring(0, cut + 1);
            if (deeper != null && (prefixes.contains(deeper) || deeper.equals(request.after()))) {
                continue;
            }
            if (rows.size() + prefixes.size() >= request.limit() || bytes >= PAGE_BYTES_MAX) {
                return new Page(rows, prefixes, true, version);
            }
            if (deeper != null) {
                prefixes.add(deeper);
                continue;
            }
            Entry entry = entries.get(key);
            rows.add(request.values() ? entry : new Entry(key, entry.version(), null));
            bytes += request.values() ? entry.value().length : 0;
        }
        return new Page(rows, prefixes, false, version);
    }

    @Override
    public synchronized TxnResult commit(Txn txn, Witness witness) throws IOException {
        requireSound(txn);
        List<String> failed = new ArrayList<>();
        for (Txn.Compare compare : txn.compares()) {
            if (compare instanceof Txn.Compare.Key key) {
                long found = entries.containsKey(key.key()) ? entries.get(key.key()).version() : ABSENT;
                if (found != key.version()) {
                    failed.add(key.key());
                }
            } else if (compare instanceof Txn.Compare.Prefix range) {
                List<String> keys = keys(range.prefix());
                if (keys.size() > RANGE_KEYS_MAX) {
                    throw new RefusedException("a compare of more than " + RANGE_KEYS_MAX + " keys");
                }
                if (keys.stream().anyMatch(key -> entries.get(key).version() > range.newest())) {
                    failed.add(range.prefix());
                }
            }
        }
        Map<Long, String> refused = new TreeMap<>();
        for (Txn.Op op : txn.ops()) {
            if (op instanceof Txn.Op.EndTxn end && refusals.containsKey(end.producerId())) {
                refused.put(end.producerId(), refusals.get(end.producerId()));
            }
        }
        version++;
        if (!failed.isEmpty() || !refused.isEmpty()) {
            return TxnResult.refused(failed, refused);
        }
        for (Txn.Op op : txn.ops()) {
            apply(op);
        }
        return TxnResult.happened(version);
    }

    private void apply(Txn.Op op) {
        if (op instanceof Txn.Op.Put put) {
            entries.put(put.key(), new Entry(put.key(), version, put.value()));
        } else if (op instanceof Txn.Op.Delete delete) {
            entries.remove(delete.key());
        } else if (op instanceof Txn.Op.DeletePrefix range) {
            entries.keySet().removeAll(keys(range.prefix()));
        } else if (op instanceof Txn.Op.EndTxn end) {
            ends.add(end);
        }
    }

    /** The ends of transactions that happened, in their order. */
    public synchronized List<Txn.Op.EndTxn> ends() {
        return List.copyOf(ends);
    }

    /** From now on the transaction of this producer cannot be ended. */
    public synchronized void refuse(long producerId, String reason) {
        refusals.put(producerId, reason);
    }

    private void requireSound(Txn txn) throws RefusedException {
        List<String> names = new ArrayList<>();
        long bytes = 0;
        for (Txn.Op op : txn.ops()) {
            if (op instanceof Txn.Op.Put put) {
                names.add(put.key());
                bytes += put.value().length;
                if (put.value().length > VALUE_BYTES_MAX) {
                    throw new RefusedException("413: value of key " + put.key() + " has " + put.value().length + " bytes");
                }
            } else if (op instanceof Txn.Op.Delete delete) {
                names.add(delete.key());
            } else if (op instanceof Txn.Op.DeletePrefix range && keys(range.prefix()).size() > RANGE_KEYS_MAX) {
                throw new RefusedException("a deletion of more than " + RANGE_KEYS_MAX + " keys");
            }
        }
        for (Txn.Op op : txn.ops()) {
            if (op instanceof Txn.Op.DeletePrefix range && names.stream().anyMatch(key -> key.startsWith(range.prefix()))) {
                throw new RefusedException("400: two operations on keys under " + range.prefix());
            }
        }
        for (String name : names) {
            if (Keys.utf8(name).length > KEY_BYTES_MAX || names.indexOf(name) != names.lastIndexOf(name)) {
                throw new RefusedException("400: key " + name + " is too long, or stands twice");
            }
        }
        if (txn.ops().size() > PARTS_MAX || txn.compares().size() > PARTS_MAX || bytes > 8 << 20) {
            throw new RefusedException("400: too large a transaction");
        }
    }

    @Override
    public String describe() {
        return "memory " + System.identityHashCode(this);
    }
}
