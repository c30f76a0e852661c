package io.raftlake.spark.fs;

import io.raftlake.spark.log.Bootstrap;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;

/**
 * The places of blobs that the settings name: new blobs go to the first one that there is, the other file system or the quorum,
 * and each blob is read and deleted where its name says.
 */
final class BlobPlaces implements BlobStore {
    private final BlobStore files;
    private final BlobStore quorum;

    /** Either may be null, but not both. */
    BlobPlaces(BlobStore files, BlobStore quorum) {
        this.files = files;
        this.quorum = quorum;
    }

    private BlobStore first() {
        return files == null ? quorum : files;
    }

    private BlobStore placeOf(String uri) {
        return uri.startsWith(BlobUri.SCHEME) ? quorum : files;
    }

    /** What to set so that a blob can be read, in words. */
    static String remedy(String uri) {
        String setting = uri.startsWith(BlobUri.SCHEME) ? Bootstrap.SETTING : HadoopBlobStore.SETTING;
        return "its content is at " + uri + ": set " + setting + ", as the program that wrote it had";
    }

    @Override
    public String uriOf(String pipeline, String id) {
        return first().uriOf(pipeline, id);
    }

    @Override
    public Output create(String uri, Announcement announcement) throws IOException {
        return placeOf(uri).create(uri, announcement);
    }

    @Override
    public FSDataInputStream open(String uri) throws IOException {
        BlobStore place = placeOf(uri);
        if (place == null) {
            throw new IOException(remedy(uri));
        }
        return place.open(uri);
    }

    @Override
    public boolean delete(String uri) throws IOException {
        BlobStore place = placeOf(uri);
        return place != null && place.delete(uri);
    }
}
