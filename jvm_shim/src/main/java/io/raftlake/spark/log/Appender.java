package io.raftlake.spark.log;

import io.raftlake.spark.log.Lanes.Lane;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;

/**
 * Appends one batch, and sends it again until an answer decides.
 *
 * <p>The same batch goes out with the same producer id and sequence each time, so the node that has it already tells its offset
 * and appends nothing. Where a node does not know the lane any more (the topic was made again, the producer id expired), a new
 * lane is taken, provided that no earlier try can have left the batch in the log. Else the outcome is unknown.
 */
final class Appender {
    private final Cluster cluster;
    private final Lanes lanes;

    Appender(Cluster cluster) {
        this.cluster = cluster;
        this.lanes = new Lanes(cluster);
    }

    /** The offset of the first record. {@code batch} is overwritten: the producer is written into it. */
    long append(Partition at, byte[] batch, int records, Tries tries) throws IOException {
        boolean mayStand = false;
        Lane lane = null;
        while (true) {
            InetSocketAddress leader = mayStand ? leaderOrUnknown(at, tries) : cluster.leader(at, tries);
            boolean isNewLane = lane == null;
            if (isNewLane) {
                lane = lanes.take(at, tries);
                BatchWriter.stamp(batch, lane.producer(), lane.sequence());
            }
            if (leader == null) {
                tries.note(at.toString(), "no leader is known");
            } else {
                try {
                    long offset = RecordMessages.produce(send(leader, at, batch, tries));
                    lanes.give(lane, records);
                    return known(offset, at, tries);
                } catch (Lost lost) {
                    tries.note(leader, lost);
                    mayStand |= lost.wasSent();
                } catch (Refusal refusal) {
                    tries.note(leader, refusal);
                    Code code = refusal.code();
                    if (code.losesSequence()) {
                        // Where this lane is new, and known to nobody, a second new one would fare no better without a pause.
                        lane = renewed(at, mayStand, refusal);
                        if (!isNewLane) {
                            continue;
                        }
                    } else if (!code.passes()) {
                        throw refused(at, lane, mayStand, refusal, tries);
                    } else {
                        mayStand |= !code.leavesNothing();
                    }
                }
            }
            cluster.forget(at.topic());
            if (tries.isOver()) {
                throw over(at, lane, mayStand, tries);
            }
            tries.pause();
        }
    }

    private ByteBuffer send(InetSocketAddress leader, Partition at, byte[] batch, Tries tries) throws IOException {
        // The node gives up before this client does, and says so.
        long timeoutMs = Math.max(1, tries.attemptMs(0) / 2);
        return cluster.ask(leader, Api.PRODUCE, RecordMessages.produce(at, batch, (int) timeoutMs), tries.attemptMs(0));
    }

    private InetSocketAddress leaderOrUnknown(Partition at, Tries tries) throws IOException {
        try {
            return cluster.leader(at, tries);
        } catch (RefusedException gone) {
            throw unknown(at, gone.getMessage());
        } catch (QuorumUnavailableException silent) {
            throw unknown(at, silent.getMessage());
        }
    }

    private static long known(long offset, Partition at, Tries tries) throws IOException {
        if (offset < 0) {
            throw new UnknownOutcomeException(tries.what() + ": the batch is in the log of " + at + ", at an unknown offset");
        }
        return offset;
    }

    /** No lane: the next try takes a new one. */
    private static Lane renewed(Partition at, boolean mayStand, Refusal refusal) throws IOException {
        if (mayStand) {
            throw unknown(at, refusal.getMessage());
        }
        return null;
    }

    /** A topic that was deleted: its lanes are of no use to another one of its name. */
    void forget(String topic) {
        lanes.forget(topic);
    }

    private IOException refused(Partition at, Lane lane, boolean mayStand, Refusal refusal, Tries tries) {
        if (mayStand) {
            return unknown(at, refusal.getMessage());
        }
        lanes.give(lane, 0);
        return new RefusedException(tries.what() + ": " + refusal.getMessage());
    }

    private IOException over(Partition at, Lane lane, boolean mayStand, Tries tries) {
        if (mayStand) {
            return unknown(at, tries.said());
        }
        if (lane != null) {
            lanes.give(lane, 0);
        }
        return tries.unavailable();
    }

    private static UnknownOutcomeException unknown(Partition at, String told) {
        return new UnknownOutcomeException("an append to " + at + " was sent, and whether it is in the log is unknown: it may "
                + "have happened, and may still happen: " + told);
    }
}
