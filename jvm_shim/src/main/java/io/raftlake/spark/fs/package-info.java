/**
 * Files as keys of the quorum: what {@link io.raftlake.spark.RaftlakeFileSystem} is made of.
 *
 * <p>Reading order: {@link io.raftlake.spark.fs.Location} (a path and its key), {@link io.raftlake.spark.fs.Node} (a key's
 * value: directory, inline file or blob), {@link io.raftlake.spark.fs.Namespace} (each operation as one transaction),
 * {@link io.raftlake.spark.fs.Moves} and {@link io.raftlake.spark.fs.Deletions} (the two that touch whole directories),
 * {@link io.raftlake.spark.fs.LateDeletions} (deletions that go with the next file),
 * {@link io.raftlake.spark.fs.FileWriter} and {@link io.raftlake.spark.fs.Content} (streams),
 * {@link io.raftlake.spark.fs.LocalCopy} (a file of the local disk that takes a content), {@link
 * io.raftlake.spark.fs.ReadAhead} and {@link io.raftlake.spark.fs.FilesAhead} (files that are read before they are opened),
 * {@link io.raftlake.spark.fs.Blobs}, {@link io.raftlake.spark.fs.BlobStore} and {@link io.raftlake.spark.fs.BlobCollector}
 * (large content), {@link io.raftlake.spark.fs.BlobPlaces} (which place), {@link io.raftlake.spark.fs.HadoopBlobStore}, {@link
 * io.raftlake.spark.fs.LogBlobStore} with {@link io.raftlake.spark.fs.BlobUri}, {@link io.raftlake.spark.fs.LogBlobOutput} and
 * {@link io.raftlake.spark.fs.LogBlobInput} (the quorum), {@link io.raftlake.spark.fs.FsSettings}.
 *
 * <p>Invariants: every directory but the root of a pipeline has a key of its own, and stands at one version while it exists.
 * So a transaction that compares the version of a file's directory cannot leave the file behind without it. A blob that no
 * file points to has an intent key.
 */
package io.raftlake.spark.fs;
