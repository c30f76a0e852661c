package io.raftlake.spark.connector.write;

import java.io.Serializable;

/** A batch write under way, and the version of its key. */
record JobNumber(String job, long number, long version) implements Serializable {}
