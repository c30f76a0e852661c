/**
 * What Spark's streams note down of themselves, for the parts that work on their threads.
 *
 * <ul>
 *   <li>{@link io.raftlake.spark.query.QueryRun}: which run of which query the calling thread works for.</li>
 * </ul>
 */
package io.raftlake.spark.query;
