package io.raftlake.spark.connector.write;

/** The transaction of an attempt: what a command of keys has to know to end it. */
record Ending(long producerId, short epoch) {}
