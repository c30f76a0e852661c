package io.raftlake.spark.connector.write;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Optional;

/**
 * The key-value space of a quorum whose HTTP listeners are found by asking its nodes: at the first call, and again after a call
 * that no listener has answered. A driver runs for months, and all nodes may have other addresses by then.
 */
final class FoundKeySpace implements KeySpace {
    /** Asks the nodes for their listeners. */
    @FunctionalInterface
    interface Finding {
        KeySpace find() throws IOException;
    }

    @FunctionalInterface
    private interface Call<T> {
        T on(KeySpace space) throws IOException;
    }

    private final String quorum;
    private final Finding finding;
    private KeySpace found;

    FoundKeySpace(String quorum, Finding finding) {
        this.quorum = quorum;
        this.finding = finding;
    }

    private synchronized KeySpace now() throws IOException {
        if (found == null) {
            found = finding.find();
        }
        return found;
    }

    private synchronized void forget(KeySpace silent) {
        if (found == silent) {
            found = null;
        }
    }

    private <T> T call(Call<T> call) throws IOException {
        KeySpace space = now();
        try {
            return call.on(space);
        } catch (QuorumUnavailableException | UnknownOutcomeException silent) {
            forget(space);
            throw silent;
        }
    }

    @Override
    public Optional<Entry> get(String key) throws IOException {
        return call(space -> space.get(key));
    }

    @Override
    public Page list(ListRequest request) throws IOException {
        return call(space -> space.list(request));
    }

    @Override
    public TxnResult commit(Txn txn, Witness witness) throws IOException {
        return call(space -> space.commit(txn, witness));
    }

    @Override
    public String describe() {
        return quorum;
    }
}
