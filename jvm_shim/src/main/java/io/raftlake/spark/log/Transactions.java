package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.TransactionMessages.Described;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Producers of transactions, and what a quorum knows of transactions. Thread-safe.
 *
 * <p>Errors: {@link QuorumUnavailableException} where nobody could say in time, {@link
 * io.raftlake.spark.quorum.RefusedException} where trying again does not help.
 */
public final class Transactions {
    /** A transaction that nobody has ended. */
    public record Open(String transactionalId, long producerId, short epoch) {}

    /**
     * How long a producer is patient, in ms.
     *
     * @param transactionMs nodes abort its transaction after so long
     * @param blockMs its begin, and a look at a topic, take so long at most
     * @param deliveryMs a batch is sent again for so long, from its append on
     * @param requestMs a node that is silent for so long is given up; 0: as this client thinks right
     */
    public record Patience(long transactionMs, long blockMs, long deliveryMs, long requestMs) {}

    private static final String BLOCK = "kafka.max.block.ms";
    private static final long PAUSE_MS_MIN = 1;
    private static final long PAUSE_MS_MAX = 50;

    /** Of the time that was waited for partitions: the longer that takes, the less often it is asked. */
    private static final long PAUSE_SHARE = 4;

    /** Ids that one request describes, as many as nodes allow. */
    private static final int DESCRIBED_MAX = 100;

    private static final Map<List<InetSocketAddress>, Transactions> OF_PROCESS = new ConcurrentHashMap<>();

    private final Cluster cluster;
    private final Coordinator coordinator;

    Transactions(List<InetSocketAddress> servers) {
        this.cluster = new Cluster(servers);
        this.coordinator = new Coordinator(cluster);
    }

    /** The one of this process. {@code servers} as {@link Bootstrap#parse} gives them. */
    public static Transactions of(List<InetSocketAddress> servers) {
        return OF_PROCESS.computeIfAbsent(servers, Transactions::new);
    }

    private static Tries tries(String what, long timeoutMs) {
        return new Tries(what, timeoutMs, Tries.ATTEMPT_MS, BLOCK);
    }

    /**
     * Who may write in the next transaction of an id, once the one before is told to all of its partitions. An open one is aborted,
     * and all who wrote under the id before are fenced.
     */
    public ProducerId nextOf(String transactionalId, Patience patience) throws IOException {
        String what = "no producer for the transactional id '" + transactionalId + "' with a time limit of "
                + patience.transactionMs() + " ms";
        Out request = TransactionMessages.initProducerId(transactionalId, patience.transactionMs());
        return coordinator.ask(Api.INIT_PRODUCER_ID, request, tries(what, patience.blockMs()), Messages::initProducerId);
    }

    /**
     * A producer of one transaction, whose records become visible together. Of all producers with one transactional id the newest
     * goes on; the others are fenced.
     */
    public TransactionalProducer producer(String transactionalId, Codec codec, Patience patience) throws IOException {
        return producer(transactionalId, nextOf(transactionalId, patience), codec, patience);
    }

    /** The same, for whom {@link #nextOf} was asked before. It is for one caller alone. */
    public TransactionalProducer producer(String transactionalId, ProducerId producer, Codec codec, Patience patience)
            throws IOException {
        return new TransactionalProducer(cluster, transactionalId, producer, codec, patience);
    }

    /**
     * Begins the transaction of a producer, which will probably append to these partitions: their leaders do not have to add them
     * first. An append to another one adds that itself, and a transaction that nobody appends to holds no reader.
     */
    public void begin(String transactionalId, ProducerId producer, List<Partition> partitions, long timeoutMs)
            throws IOException {
        Out request = TransactionMessages.addPartitions(transactionalId, producer, partitions);
        coordinator.ask(Api.ADD_PARTITIONS_TO_TXN, request, tries("no early begin of '" + transactionalId + "'", timeoutMs),
                TransactionMessages::addPartitions);
    }

    /** A producer without a transaction: each of its batches stands in the log once, and is visible at once. */
    public TransactionalProducer producer(Codec codec, Patience patience) throws IOException {
        Tries tries = tries("no producer id", patience.blockMs());
        try {
            ProducerId producer = cluster.askAny(
                    Api.INIT_PRODUCER_ID, Messages.initProducerId(), tries, false, Messages::initProducerId);
            return new TransactionalProducer(cluster, null, producer, codec, patience);
        } catch (Refusal refusal) {
            throw LogReads.refused(refusal, tries);
        }
    }

    /** How many partitions a topic has, as it was seen within the last minutes; nothing where there is none. */
    public OptionalInt partitions(String topic, long timeoutMs) throws IOException {
        return cluster.known(topic, tries("a look at topic " + topic, timeoutMs)).stream()
                .mapToInt(known -> known.topic().partitions())
                .findFirst();
    }

    /** The same where a partition may have been added since: it is looked for anew, and for a moment again. */
    public OptionalInt partitionsWith(Partition added, long timeoutMs) throws IOException {
        try {
            cluster.leader(added, tries("a look at " + added, timeoutMs));
        } catch (UnknownTopicException absent) {
            // The number that was seen says so.
        }
        return partitions(added.topic(), timeoutMs);
    }

    /** The names of all topics. */
    public List<String> topics(long timeoutMs) throws IOException {
        return cluster.describe(null, tries("a look at all topics", timeoutMs)).stream()
                .map(known -> known.topic().name())
                .toList();
    }

    /** The open transactions of all transactional ids that begin so. */
    public List<Open> open(String prefix, long timeoutMs) throws IOException {
        Tries tries = tries("a list of transactions", timeoutMs);
        // Of the node that coordinates now: one that was replaced may not know it yet.
        Coordinator current = new Coordinator(cluster);
        List<String> names = current.ask(
                Api.LIST_TRANSACTIONS, TransactionMessages.list(), tries, TransactionMessages::list);
        List<String> ofPrefix = names.stream().filter(name -> name.startsWith(prefix)).sorted().toList();
        return describe(current, ofPrefix, tries).stream()
                .filter(row -> row.state().equals(TransactionMessages.ONGOING))
                .map(row -> new Open(row.transactionalId(), row.producerId(), row.epoch()))
                .toList();
    }

    /**
     * Waits until the decided ends of these transactions are told to all of their partitions: who reads then is shown what was
     * committed. False where the time is over before. QuorumUnavailableException where nobody said anything of them.
     */
    public boolean settle(Collection<String> transactionalIds, long timeoutMs) throws IOException {
        Tries tries = tries("a description of transactions", timeoutMs);
        List<String> left = unsettled(List.copyOf(transactionalIds), tries);
        long begunAtNs = System.nanoTime();
        while (!left.isEmpty() && !tries.isOver()) {
            long waitedMs = (System.nanoTime() - begunAtNs) / 1_000_000;
            tries.pauseFor(Math.min(PAUSE_MS_MAX, Math.max(PAUSE_MS_MIN, waitedMs / PAUSE_SHARE)));
            try {
                left = unsettled(left, tries);
            } catch (QuorumUnavailableException over) {
                return false;
            }
        }
        return left.isEmpty();
    }

    private List<String> unsettled(List<String> names, Tries tries) throws IOException {
        return describe(coordinator, names, tries).stream()
                .filter(Described::isUnsettled)
                .map(Described::transactionalId)
                .toList();
    }

    private static List<Described> describe(Coordinator coordinator, List<String> names, Tries tries) throws IOException {
        List<Described> found = new ArrayList<>();
        for (int start = 0; start < names.size(); start += DESCRIBED_MAX) {
            List<String> some = names.subList(start, Math.min(names.size(), start + DESCRIBED_MAX));
            found.addAll(coordinator.ask(Api.DESCRIBE_TRANSACTIONS, TransactionMessages.describe(some), tries,
                    TransactionMessages::describe));
        }
        return found;
    }
}
