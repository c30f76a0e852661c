package io.raftlake.spark.fs;

import io.raftlake.spark.log.Logs;
import io.raftlake.spark.log.Logs.LogRecord;
import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.quorum.Keys;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;

/**
 * Blobs in the quorum itself: chunks are records of the compacted topic {@value #TOPIC}. {@link BlobUri} has the format.
 *
 * <p>A blob goes by tombstones of its keys, and compaction gives the room back. Nothing else reads the topic from its start to
 * its end, so tombstones need not stay long.
 */
public final class LogBlobStore implements BlobStore {
    public static final String TOPIC = "__raftlake-blobs";

    /** As many as writers of one node may want to be led by. */
    static final int PARTITIONS = 6;

    /** A blob under way may have so many chunks before it is announced anew, with four times as many. */
    static final int CHUNKS_ANNOUNCED = 64;

    /**
     * Only closed segments are compacted, so an old one is closed though it is small. The ratio is 0, since tombstones are few
     * bytes: by any other one, chunks that were compacted before would stay until much more is written.
     */
    static final Map<String, String> CONFIGS = Map.of(
            "cleanup.policy", "compact",
            "segment.ms", "3600000",
            "min.cleanable.dirty.ratio", "0",
            "delete.retention.ms", "3600000");

    private static final int TOMBSTONES_OF_BATCH = 5_000;

    private final Logs logs;
    private Logs.Topic topic;

    public LogBlobStore(Logs logs) {
        this.logs = logs;
    }

    private synchronized void requireTopic() throws IOException {
        if (topic == null) {
            topic = logs.ensureTopic(TOPIC, PARTITIONS, CONFIGS);
        }
    }

    @Override
    public String uriOf(String pipeline, String id) {
        int partition = Math.floorMod(id.hashCode(), PARTITIONS);
        return new BlobUri(TOPIC, partition, -1, -1, CHUNKS_ANNOUNCED, FileWriter.CHUNK_BYTES, id).toString();
    }

    @Override
    public Output create(String uri, Announcement announcement) throws IOException {
        requireTopic();
        return new LogBlobOutput(logs, BlobUri.parse(uri), announcement);
    }

    @Override
    public FSDataInputStream open(String uri) throws IOException {
        BlobUri blob = BlobUri.parse(uri);
        if (blob == null || !blob.isWritten()) {
            throw new FileNotFoundException("no blob in the quorum: " + uri);
        }
        return new FSDataInputStream(new LogBlobInput(logs, blob));
    }

    @Override
    public boolean delete(String uri) throws IOException {
        BlobUri blob = BlobUri.parse(uri);
        if (blob == null) {
            return false;
        }
        requireTopic();
        List<LogRecord> tombstones = new ArrayList<>();
        Partition at = new Partition(blob.topic(), blob.partition());
        for (int chunk = 0; chunk < blob.chunks(); chunk++) {
            tombstones.add(LogRecord.of(Keys.utf8(blob.key(chunk)), null));
            if (tombstones.size() == TOMBSTONES_OF_BATCH) {
                logs.append(at, tombstones);
                tombstones.clear();
            }
        }
        if (!blob.isWritten() || !blob.isContiguous()) {
            tombstones.add(LogRecord.of(Keys.utf8(blob.indexKey()), null));
        }
        if (!tombstones.isEmpty()) {
            logs.append(at, tombstones);
        }
        return true;
    }
}
