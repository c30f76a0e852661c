package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;

/**
 * What must hold for each change that one writer makes: compares in every transaction of the writer. A fence of one file alone may
 * add operations, which happen with the file.
 */
public interface Fence {
    /** For writers that nobody fences. */
    Fence NONE = new Fence() {
        @Override
        public void addTo(Txn txn) {}

        @Override
        public void explain(TxnResult refused) {}

        @Override
        public void confirm() {}

        @Override
        public void confirmNowAndThen() {}
    };

    /** Adds the compares, to each try of a transaction anew. An IOException where the writer is known to be fenced already. */
    void addTo(Txn txn) throws IOException;

    /** An IOException where these compares were in the way of a transaction for good. */
    void explain(TxnResult refused) throws IOException;

    /** Looks whether the writer is fenced: an IOException if so. For a change that needs no transaction to be refused. */
    void confirm() throws IOException;

    /** The same, at most once a second, however many writers of this process share the fence. */
    void confirmNowAndThen() throws IOException;
}
