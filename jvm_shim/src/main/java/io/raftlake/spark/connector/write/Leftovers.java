package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Aborts what nobody commits, as far as the quorum can be told. The nodes end the others after their time limits. */
final class Leftovers {
    private static final Logger LOG = LoggerFactory.getLogger(Leftovers.class);

    /** One question, ms. */
    private static final long TRY_MS = 30_000;

    private final KeySpace keys;
    private final OpenTransactions transactions;

    Leftovers(KeySpace keys, OpenTransactions transactions) {
        this.keys = keys;
        this.transactions = transactions;
    }

    /** Aborts the open transactions of ids that begin so, but for some, while a key has a version; how many. */
    int sweep(String prefix, String key, long version, Collection<Ending> kept) {
        Set<Long> needed = new HashSet<>();
        kept.forEach(ending -> needed.add(ending.producerId()));
        List<Ending> left = new ArrayList<>();
        try {
            for (Open open : transactions.open(prefix, TRY_MS)) {
                if (SinkKeys.isTaskOf(prefix, open.transactionalId()) && !needed.contains(open.producerId())) {
                    left.add(new Ending(open.producerId(), open.epoch()));
                }
            }
        } catch (IOException error) {
            LOG.warn("open transactions of {} are left to their time limit: {}", prefix, error.getMessage());
            return 0;
        }
        return abort(left, key, version);
    }

    /** Aborts transactions while a key has a version; how many. */
    int abort(Collection<Ending> endings, String key, long version) {
        return abort(endings, txn -> txn.compare(key, version));
    }

    /**
     * Aborts transactions of the caller's own tasks, which nobody else can commit; how many. A run that was replaced does so too:
     * readers of what is committed would wait in front of its rows.
     */
    int giveUp(Collection<Ending> endings) {
        return abort(endings, txn -> txn);
    }

    private int abort(Collection<Ending> endings, UnaryOperator<Txn> compare) {
        Map<Long, Ending> left = new LinkedHashMap<>();
        endings.forEach(ending -> left.put(ending.producerId(), ending));
        int aborted = 0;
        while (!left.isEmpty()) {
            List<Ending> some = left.values().stream().limit(SinkKeys.TASKS_MAX).toList();
            Set<Long> ended = refused(some, compare.apply(new Txn()));
            if (ended == null) {
                return aborted;
            }
            if (ended.isEmpty()) {
                aborted += some.size();
                some.forEach(ending -> left.remove(ending.producerId()));
            } else {
                left.keySet().removeAll(ended);
            }
        }
        return aborted;
    }

    /** The producers whose transactions had ended, so that nothing happened; empty where all of it did; null: who knows. */
    private Set<Long> refused(List<Ending> some, Txn txn) {
        some.forEach(ending -> txn.endTxn(ending.producerId(), ending.epoch(), false));
        try {
            TxnResult result = keys.commit(txn, space -> false);
            if (result.succeeded()) {
                return Set.of();
            }
            boolean haveEnded = result.inTheWay().isEmpty() && !result.refused().isEmpty();
            return haveEnded ? result.refused().keySet() : null;
        } catch (IOException error) {
            LOG.warn("open transactions are left to their time limit: {}", error.getMessage());
            return null;
        }
    }

    /** After a commit: waits for the partitions, so that whoever reads behind the write is shown its rows. */
    void settle(Collection<String> transactionalIds, long timeoutMs) {
        List<String> names = transactionalIds.stream().filter(name -> !name.isEmpty()).toList();
        if (names.isEmpty()) {
            return;
        }
        try {
            if (!transactions.settle(names, timeoutMs)) {
                LOG.warn("what was committed is not shown by all partitions after {} ms", timeoutMs);
            }
        } catch (IOException error) {
            LOG.warn("what was committed may be shown a little later: {}", error.getMessage());
        }
    }
}
