package io.raftlake.spark.fs;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FSDataInputStream;

/**
 * Where the content of large files is kept. A blob is written once, under a name that nothing else has, and never changed.
 *
 * <p>Guarantees: once the stream of {@link #create} is closed, {@link #open} finds the bytes, from any process.
 * {@link #delete} of what is not there is no error. The last component of each name is the blob's id.
 */
public interface BlobStore {
    /** Says anew, for {@link #delete}, how much of a blob there may be, before it is written. */
    @FunctionalInterface
    interface Announcement {
        void renew(String uri) throws IOException;
    }

    /** A blob under way. */
    abstract class Output extends OutputStream {
        /** The name under which it is found, once it is closed. */
        abstract String uri();

        /** Ends it unfinished. False where bytes may still arrive after this call: then it must not be deleted yet. */
        abstract boolean abort();
    }

    /** The name under which the blob with this id is announced: {@link #delete} takes it, finished or not. */
    String uriOf(String pipeline, String id);

    /** {@code uri} as {@link #uriOf} gives it. */
    Output create(String uri, Announcement announcement) throws IOException;

    /** FileNotFoundException where there is no such blob. */
    FSDataInputStream open(String uri) throws IOException;

    /** False for a blob that is not of this store, which is left alone. */
    boolean delete(String uri) throws IOException;
}
