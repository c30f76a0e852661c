package io.raftlake.spark.log;

/**
 * Nodes know another topic of this name alone. It may be newer than the one that was asked for. Or the nodes lag, and it was
 * deleted since.
 */
public final class OtherTopicException extends UnknownTopicException {
    private static final long serialVersionUID = 1;

    public OtherTopicException(String told) {
        super(told);
    }
}
