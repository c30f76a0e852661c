package io.raftlake.spark.log;

import io.raftlake.spark.quorum.RefusedException;

/** There is no such topic, no such partition, or the topic of this name is another one than was asked for. */
public class UnknownTopicException extends RefusedException {
    private static final long serialVersionUID = 1;

    public UnknownTopicException(String told) {
        super(told);
    }
}
