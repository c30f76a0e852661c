package io.raftlake.spark.fs;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The name of a blob in the quorum: {@code quorum:<topic>/<partition>/[<first>-<last>/]<chunks>x<bytes of a chunk>/<id>}.
 *
 * <p>Chunk n is the value of the record with the key {@code <id>/<n>}. {@code first} is the offset of chunk 0, and -1 while the
 * blob is written: then {@code chunks} bounds how many there are. Where {@code last - first + 1} is {@code chunks}, the chunks
 * stand one after the other. Else other records stand between them, and at {@code last} stands a record with the key
 * {@code <id>/index}: the offsets of all chunks, as u64 in big endian.
 */
record BlobUri(String topic, int partition, long first, long last, int chunks, int chunkBytes, String id) {
    static final String SCHEME = "quorum:";

    private static final Pattern FORM = Pattern.compile(
            "quorum:([^/]+)/([0-9]{1,9})/(?:([0-9]{1,18})-([0-9]{1,18})/)?([0-9]{1,9})x([1-9][0-9]{0,8})/([^/]+)");

    /** Null for what is no such name. */
    static BlobUri parse(String uri) {
        Matcher found = FORM.matcher(uri);
        if (!found.matches()) {
            return null;
        }
        boolean isWritten = found.group(3) != null;
        return new BlobUri(found.group(1), Integer.parseInt(found.group(2)),
                isWritten ? Long.parseLong(found.group(3)) : -1, isWritten ? Long.parseLong(found.group(4)) : -1,
                Integer.parseInt(found.group(5)), Integer.parseInt(found.group(6)), found.group(7));
    }

    boolean isWritten() {
        return first >= 0;
    }

    /** Whether the offsets of the chunks follow one another. */
    boolean isContiguous() {
        return last - first + 1 == chunks;
    }

    String key(int chunk) {
        return id + "/" + chunk;
    }

    String indexKey() {
        return id + "/index";
    }

    /** The same blob, while it is written, with another bound. */
    BlobUri upTo(int chunksMax) {
        return new BlobUri(topic, partition, -1, -1, chunksMax, chunkBytes, id);
    }

    BlobUri written(long firstOffset, long lastOffset, int count) {
        return new BlobUri(topic, partition, firstOffset, lastOffset, count, chunkBytes, id);
    }

    @Override
    public String toString() {
        String range = isWritten() ? first + "-" + last + "/" : "";
        return SCHEME + topic + "/" + partition + "/" + range + chunks + "x" + chunkBytes + "/" + id;
    }
}
