package io.raftlake.spark.connector.write;

import io.raftlake.spark.log.Transactions.Open;
import java.io.IOException;
import java.util.Collection;
import java.util.List;

/** What the coordinator of transactions tells; the part of {@link io.raftlake.spark.log.Transactions} that the driver needs. */
interface OpenTransactions {
    List<Open> open(String prefix, long timeoutMs) throws IOException;

    boolean settle(Collection<String> transactionalIds, long timeoutMs) throws IOException;
}
