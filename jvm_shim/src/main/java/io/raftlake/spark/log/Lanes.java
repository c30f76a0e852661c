package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Producer ids and their sequences: what makes a repeated batch harmless.
 *
 * <p>A lane is one producer id on one partition, and carries one batch at a time. So appends that run in parallel take lanes of
 * their own, and the node always remembers a lane's last batch. A lane whose sequence is not certain is dropped, and its
 * producer id is not used on that partition again. Lanes of different partitions share producer ids.
 */
final class Lanes {
    private static final int SEQUENCE_MASK = Integer.MAX_VALUE;

    /** One producer id on one partition. */
    static final class Lane {
        private final Partition at;
        private final ProducerId producer;
        private int sequence;

        private Lane(Partition at, ProducerId producer) {
            this.at = at;
            this.producer = producer;
        }

        ProducerId producer() {
            return producer;
        }

        int sequence() {
            return sequence;
        }
    }

    private static final class OfPartition {
        private final Deque<Lane> idle = new ArrayDeque<>();
        private int made;

        private OfPartition(int firstNumber) {
            this.made = firstNumber;
        }
    }

    private final Cluster cluster;
    private final Map<Partition, OfPartition> partitions = new HashMap<>();
    private final List<ProducerId> ids = new ArrayList<>();
    private int firstNumber;

    Lanes(Cluster cluster) {
        this.cluster = cluster;
    }

    /** A lane for one batch, which nobody else uses until it is given back. */
    Lane take(Partition at, Tries tries) throws IOException {
        int number;
        synchronized (this) {
            OfPartition lanes = partitions.computeIfAbsent(at, absent -> new OfPartition(firstNumber));
            Lane lane = lanes.idle.pollLast();
            if (lane != null) {
                return lane;
            }
            number = lanes.made++;
        }
        return new Lane(at, id(number, tries));
    }

    /** The batch, of so many records, is in the log: 0 where it certainly is not, and nothing of the lane was used. */
    synchronized void give(Lane lane, int records) {
        lane.sequence = lane.sequence + records & SEQUENCE_MASK;
        OfPartition lanes = partitions.get(lane.at);
        if (lanes != null) {
            lanes.idle.addLast(lane);
        }
    }

    /**
     * Drops the lanes of a deleted topic. Lanes that are made from now on have other producer ids: a late batch may still go to
     * a topic that is made under this name.
     */
    synchronized void forget(String topic) {
        for (Partition at : List.copyOf(partitions.keySet())) {
            if (at.topic().equals(topic)) {
                firstNumber = Math.max(firstNumber, partitions.remove(at).made);
            }
        }
    }

    /** The producer id that each partition has for the lane with this number. */
    private ProducerId id(int number, Tries tries) throws IOException {
        while (true) {
            synchronized (this) {
                if (number < ids.size()) {
                    return ids.get(number);
                }
            }
            ProducerId made = made(tries);
            synchronized (this) {
                ids.add(made);
            }
        }
    }

    private ProducerId made(Tries tries) throws IOException {
        try {
            return cluster.askAny(Api.INIT_PRODUCER_ID, Messages.initProducerId(), tries, false, Messages::initProducerId);
        } catch (Refusal refusal) {
            if (refusal.code().passes()) {
                throw tries.unavailable();
            }
            throw new RefusedException(tries.what() + ": no producer id: " + refusal.getMessage());
        }
    }
}
