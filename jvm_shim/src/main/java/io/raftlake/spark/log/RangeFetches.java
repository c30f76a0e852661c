package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.List;

/** Bytes of one partition of one topic, from any node that holds it. For one thread at a time. */
public final class RangeFetches {
    /** In place of a node's id: whoever leads. */
    public static final int LEADER = -1;

    /**
     * Whole batches from the one on that holds the offset, undecoded, and perhaps a piece of one at the end.
     *
     * @param nodeId who sent them; {@link #LEADER} where that was asked
     */
    public record Got(ByteBuffer data, List<Batches.Aborted> aborted, int nodeId) {}

    private final LogReads reads;
    private final Partition at;
    private final String topicId;
    private final boolean committed;

    /** {@code topicId} in base64: another topic of the same name is {@link UnknownTopicException}. */
    public RangeFetches(LogReads reads, Partition at, String topicId, boolean committed) {
        this.reads = reads;
        this.at = at;
        this.topicId = topicId;
        this.committed = committed;
    }

    /**
     * One batch at least that holds {@code offset} or a later one, where there is one, and about {@code maxBytes}. A node waits
     * {@code waitMs} for it. A node that does not have the offset, or does not answer, is left for the leader.
     *
     * <p>{@link OffsetRangeException} where the leader does not hold the offset, {@link UnreadableLogException} where the nodes
     * cannot read it.
     */
    public Got fetch(long offset, int maxBytes, int waitMs, int nodeId) throws IOException {
        Tries tries = reads.tries("a read of " + at + " from offset " + offset);
        Out request = RecordMessages.fetchById(topicId, at.partition(), offset, maxBytes, waitMs, committed);
        if (nodeId != LEADER) {
            Got got = ofReplica(request, waitMs, nodeId, tries);
            if (got != null) {
                return got;
            }
        }
        try {
            RecordMessages.FetchAnswer answer =
                    reads.cluster().askLeader(at, topicId, Api.FETCH_BY_ID, request, tries, waitMs, RecordMessages::fetchById);
            if (answer.code() == Code.OFFSET_OUT_OF_RANGE) {
                throw new OffsetRangeException(at, offset, answer.logStart(), answer.highWatermark());
            }
            return new Got(answer.records(), answer.aborted(), LEADER);
        } catch (Refusal refusal) {
            throw LogReads.refused(refusal, tries);
        }
    }

    /** Null where this node cannot serve the offset now. */
    private Got ofReplica(Out request, int waitMs, int nodeId, Tries tries) throws IOException {
        if (reads.cluster().node(nodeId) == null) {
            // A process that has asked nothing yet knows no ids.
            reads.topics(List.of(at.topic()));
        }
        InetSocketAddress node = reads.cluster().node(nodeId);
        if (node == null) {
            return null;
        }
        try {
            ByteBuffer answer = reads.cluster().ask(node, Api.FETCH_BY_ID, request, tries.attemptMs(waitMs));
            RecordMessages.FetchAnswer got = RecordMessages.fetchById(answer);
            boolean isThere = got.code() == Code.NONE && got.records().hasRemaining();
            return isThere ? new Got(got.records(), got.aborted(), nodeId) : null;
        } catch (Lost | Refusal refused) {
            tries.note(node, refused);
            return null;
        }
    }
}
