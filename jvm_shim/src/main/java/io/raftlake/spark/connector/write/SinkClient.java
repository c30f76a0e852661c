package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.LogReads;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionalProducer;
import io.raftlake.spark.log.Transactions;
import io.raftlake.spark.log.Transactions.Open;
import io.raftlake.spark.quorum.HttpKeySpace;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Servers;
import io.raftlake.spark.quorum.Txn;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The clients of a quorum that writes of one process share. */
final class SinkClient implements OpenTransactions {
    private static final Logger LOG = LoggerFactory.getLogger(SinkClient.class);

    private static final Map<Quorum, SinkClient> OF_PROCESS = new ConcurrentHashMap<>();

    private static final long END_MS_MAX = 5_000;

    private final Quorum quorum;
    private final Transactions transactions;
    private final KeySpace keys;

    /** With little patience: for the ends of transactions that the driver or a time limit ends, too. */
    private final KeySpace keysForEnds;

    private SinkClient(Quorum quorum) {
        this.quorum = quorum;
        this.transactions = Transactions.of(Bootstrap.parse(quorum.servers()));
        this.keys = new FoundKeySpace(quorum.servers(), () -> new HttpKeySpace(fronts(), quorum.patience().askMs()));
        this.keysForEnds = new FoundKeySpace(quorum.servers(), () -> new HttpKeySpace(fronts(), END_MS_MAX));
    }

    static SinkClient of(Quorum quorum) {
        return OF_PROCESS.computeIfAbsent(quorum, SinkClient::new);
    }

    Transactions transactions() {
        return transactions;
    }

    /** Over HTTP, at the listeners that the nodes name. */
    KeySpace keys() {
        return keys;
    }

    private List<String> fronts() throws IOException {
        List<InetSocketAddress> servers = Bootstrap.parse(quorum.servers());
        List<String> listeners =
                LogReads.of(servers, quorum.patience().askMs(), quorum.patience().requestMs()).httpListeners();
        if (listeners.isEmpty()) {
            throw new QuorumUnavailableException(
                    "no reachable node among " + quorum.servers() + " (http: no node names its http.listener)");
        }
        return Servers.parse(String.join(",", listeners));
    }

    /** Aborts the transaction of a task that failed, whose error is told; what is left open the driver ends. */
    void abort(TransactionalProducer producer, String transactionalId) {
        try {
            producer.close();
            Txn end = new Txn().endTxn(producer.producerId(), producer.epoch(), false);
            keysForEnds.commit(end, space -> false);
        } catch (IOException error) {
            LOG.warn("the transaction {} is left to the driver: {}", transactionalId, error.getMessage());
        }
    }

    Leftovers leftovers() {
        return new Leftovers(keysForEnds, this);
    }

    Ledger ledger() {
        return new Ledger(keys, leftovers(), System::currentTimeMillis);
    }

    JobLedger jobs() {
        return new JobLedger(keys, leftovers(), System::currentTimeMillis);
    }

    /** IllegalArgumentException, naming topics that there are, for one that does not exist. */
    int partitions(String topic) throws IOException {
        return require(topic, transactions.partitions(topic, quorum.patience().askMs()));
    }

    /** The same where this partition may have been added since. */
    int partitionsWith(Partition added) throws IOException {
        return require(added.topic(), transactions.partitionsWith(added, quorum.patience().askMs()));
    }

    private int require(String topic, OptionalInt count) throws IOException {
        if (count.isEmpty()) {
            throw Errors.missingTopics(List.of(topic), transactions.topics(quorum.patience().askMs()));
        }
        return count.getAsInt();
    }

    @Override
    public List<Open> open(String prefix, long timeoutMs) throws IOException {
        return transactions.open(prefix, timeoutMs);
    }

    @Override
    public boolean settle(Collection<String> transactionalIds, long timeoutMs) throws IOException {
        return transactions.settle(transactionalIds, timeoutMs);
    }
}
