/**
 * Streaming checkpoints that belong to one query run. {@link io.raftlake.spark.QuorumCheckpointFileManager} is what Spark loads.
 *
 * <ul>
 *   <li>{@link io.raftlake.spark.checkpoint.CheckpointFiles}: the file manager of {@code raftlake://}.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.LocalFiles}: that of a local disk.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.Run}: which query run the calling thread works for.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.CheckpointRoot}: which checkpoint a path belongs to.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.Checkpoint}: the same for what is kept beside the files.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.Ownership}: the owner key, as a fence around every change of a run.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.OwnershipsOfProcess}: which of them are kept.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.EpochEnds}: what a sink has decided together with the end of a batch.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.BatchPlans}: the begins of batches, beside Spark's own work.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.NewestBatch}: what the owner need not ask the quorum.</li>
 *   <li>{@link io.raftlake.spark.checkpoint.Owner}: the value of the owner key.</li>
 * </ul>
 *
 * <p>Invariant: once a run has taken a checkpoint, no change of any other run happens in it, unless that run takes it later.
 */
package io.raftlake.spark.checkpoint;
