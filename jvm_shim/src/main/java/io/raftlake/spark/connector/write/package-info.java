/**
 * The exactly-once sink. Tasks write transactions of their own, which nobody sees; the driver makes the rows of the attempts that
 * Spark has accepted visible by one command of the quorum. It shares its keys with the sink in Python
 * ({@code raftlake/client/sink_keys.py}), so a query may change between both over a restart.
 */
package io.raftlake.spark.connector.write;
