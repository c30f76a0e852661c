package io.raftlake.spark.connector.write;

import io.raftlake.spark.checkpoint.EpochEnds;
import io.raftlake.spark.connector.write.SinkKeys.Committed;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import java.io.IOException;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The rows of one batch of real-time mode. They become visible with the file that ends the batch, or never. */
final class EpochRows implements EpochEnds.Outcome {
    private static final Logger LOG = LoggerFactory.getLogger(EpochRows.class);

    private final Ledger ledger;
    private final Leftovers leftovers;
    private final Standing standing;
    private final Committed batch;
    private final List<Ending> endings;
    private final Runnable behind;

    /** {@code behind}: what is to be done once the rows are visible. */
    EpochRows(Ledger ledger, Leftovers leftovers, Standing standing, Committed batch, List<Ending> endings, Runnable behind) {
        this.ledger = ledger;
        this.leftovers = leftovers;
        this.standing = standing;
        this.batch = batch;
        this.endings = endings;
        this.behind = behind;
    }

    @Override
    public void addTo(Txn txn) {
        Ledger.addTo(txn, standing, batch, endings);
    }

    @Override
    public void explain(TxnResult refused) throws IOException {
        String app = standing.app();
        boolean isOurs = !refused.refused().isEmpty() || refused.inTheWay().contains(SinkKeys.ownerKey(app))
                || refused.inTheWay().contains(SinkKeys.batchKey(app));
        if (isOurs && !ledger.explain(standing, batch, refused)) {
            throw new SinkFailedException("batch " + batch.batch() + " of " + app + " became visible while its tasks ran, with "
                    + "the rows of others, and none of these did. Start the query again");
        }
    }

    @Override
    public void decided() {
        LOG.info("batch {} of {}: {} rows in real-time mode", batch.batch(), standing.app(), batch.rows());
        behind.run();
    }

    /** Readers of what is committed would wait in front of the rows. */
    @Override
    public void failed() {
        int aborted = leftovers.giveUp(endings);
        LOG.warn("batch {} of {} was not committed; {} of {} transactions are aborted", batch.batch(), standing.app(), aborted,
                endings.size());
    }
}
