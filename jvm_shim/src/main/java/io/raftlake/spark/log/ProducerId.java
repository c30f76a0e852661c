package io.raftlake.spark.log;

import java.io.Serializable;

/** A producer id with its epoch: who writes. */
public record ProducerId(long id, short epoch) implements Serializable {}
