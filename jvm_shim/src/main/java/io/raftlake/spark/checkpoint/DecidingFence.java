package io.raftlake.spark.checkpoint;

import io.raftlake.spark.fs.Fence;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;

/** The fence of a run for the one file that ends a batch, whose transaction decides what a sink has written, too. */
record DecidingFence(Fence ofRun, EpochEnds.Outcome outcome) implements Fence {
    @Override
    public void addTo(Txn txn) throws IOException {
        ofRun.addTo(txn);
        outcome.addTo(txn);
    }

    @Override
    public void explain(TxnResult refused) throws IOException {
        ofRun.explain(refused);
        outcome.explain(refused);
    }

    @Override
    public void confirm() throws IOException {
        ofRun.confirm();
    }

    @Override
    public void confirmNowAndThen() throws IOException {
        ofRun.confirmNowAndThen();
    }
}
