package io.raftlake.spark.fs;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which blobs no file points to: each has an intent, a key {@code /fs-blobs/<pipeline>/<id>} with JSON {@code mtime} (ms) and
 * {@code where}, its URI.
 *
 * <p>An intent is put before the first byte of a blob. The transaction that puts the pointer deletes the intent, and compares
 * its version. The transaction that takes a pointer away puts the intent back. So a crash at any moment leaves an intent, or a
 * file whose blob is there. {@link BlobCollector} removes what old intents name.
 */
public final class Blobs {
    static final String ROOT = "/fs-blobs/";

    private static final Logger LOG = LoggerFactory.getLogger(Blobs.class);
    private static final ObjectMapper MAPPER = new ObjectMapper();

    /** A blob under way, or one that nothing points to any more. */
    record Intent(String key, long version, String uri) {}

    /** A blob whose pointer goes with a transaction that is not committed yet, and the intent that the transaction puts. */
    record Garbage(String key, String uri, byte[] intent) {}

    private final KeySpace space;
    private final BlobStore store;
    private final BlobCollector collector;

    /** {@code store} is null where no place for blobs is set, {@code collector} where nobody is to look for orphans. */
    public Blobs(KeySpace space, BlobStore store, BlobCollector collector) {
        this.space = space;
        this.store = store;
        this.collector = collector;
    }

    /** Whether there is a place for large files. */
    boolean hasPlace() {
        return store != null;
    }

    BlobStore store() {
        return store;
    }

    /** Begins to look for orphans, unless this process did so within the hour. */
    void collectIfDue(String pipeline) {
        if (collector != null) {
            collector.startIfDue(pipeline);
        }
    }

    static String prefix(String pipeline) {
        return ROOT + pipeline + "/";
    }

    /** Announces the blob with this id; from now on it may be written. Who keeps the process busy with blobs looks for orphans. */
    Intent announce(String pipeline, String id) throws IOException {
        collectIfDue(pipeline);
        String key = prefix(pipeline) + id;
        String uri = store.uriOf(pipeline, id);
        byte[] value = intent(uri);
        TxnResult result =
                space.commit(new Txn().compare(key, KeySpace.ABSENT).put(key, value), Witness.put(key, value));
        if (!result.succeeded()) {
            throw new IOException("the id of a new blob is taken: " + key);
        }
        Optional<Entry> entry = result.version() != 0 ? Optional.empty() : space.get(key);
        long version = entry.map(Entry::version).orElse(result.version());
        return new Intent(key, version, uri);
    }

    /** Announces a blob under way anew, under another name. An IOException where it was taken for an orphan meanwhile. */
    Intent renew(Intent before, String uri) throws IOException {
        byte[] value = intent(uri);
        Txn txn = new Txn().compare(before.key(), before.version()).put(before.key(), value);
        TxnResult result = space.commit(txn, Witness.put(before.key(), value));
        if (!result.succeeded()) {
            throw new IOException("the blob " + before.uri() + " was removed while it was written: it was older than "
                    + FsSettings.ORPHAN_AGE);
        }
        Optional<Entry> entry = result.version() != 0 ? Optional.empty() : space.get(before.key());
        return new Intent(before.key(), entry.map(Entry::version).orElse(result.version()), uri);
    }

    /** Puts the intent of a blob back in the transaction that takes away the file that points to it. */
    List<Garbage> discard(Txn txn, Found file) throws IOException {
        if (!file.exists() || !file.node().isBlob()) {
            return List.of();
        }
        String uri = file.node().blob().uri();
        Garbage garbage = new Garbage(prefix(file.location().pipeline()) + idOf(uri), uri, intent(uri));
        txn.put(garbage.key(), garbage.intent());
        return List.of(garbage);
    }

    /**
     * What tells that a transaction happened that takes pointers away: the intent that it puts. A file that is gone may have
     * been renamed, with its blob. {@code other} is for a transaction without blobs.
     */
    static Witness witness(List<Garbage> garbage, Witness other) {
        return garbage.isEmpty() ? other : Witness.put(garbage.get(0).key(), garbage.get(0).intent());
    }

    /** Removes blobs whose files are gone. What cannot be removed now is left to the collector. */
    void remove(List<Garbage> garbage) {
        for (Garbage one : garbage) {
            try {
                if (store != null && store.delete(one.uri())) {
                    space.commit(new Txn().delete(one.key()), at -> at.get(one.key()).isEmpty());
                }
            } catch (IOException error) {
                LOG.warn("blob {} stays until it is collected as an orphan: {}", one.uri(), error.toString());
            }
        }
    }

    /** Removes the blob of a file that was not written to its end: nobody has tried to put it. */
    void abandon(Intent intent) {
        remove(List.of(new Garbage(intent.key(), intent.uri(), null)));
    }

    /**
     * Removes the blob of a file whose put was refused. Where the intent is not as its writer left it, a try whose answer was
     * lost may have put the file, and the blob stays.
     */
    void abandonRefused(Intent intent) {
        try {
            if (claim(space, intent)) {
                abandon(intent);
            }
        } catch (IOException error) {
            LOG.warn("blob {} stays until it is collected as an orphan: {}", intent.uri(), error.toString());
        }
    }

    /** Rewrites an intent. From then on no pointer to its blob can be put: that transaction compares the intent's version. */
    static boolean claim(KeySpace space, Intent intent) throws IOException {
        byte[] claimed = intent(intent.uri());
        Txn claim = new Txn().compare(intent.key(), intent.version()).put(intent.key(), claimed);
        return space.commit(claim, Witness.put(intent.key(), claimed)).succeeded();
    }

    /** The last component. */
    private static String idOf(String uri) {
        return uri.substring(uri.lastIndexOf('/') + 1);
    }

    static byte[] intent(String uri) throws IOException {
        return MAPPER.writeValueAsBytes(
                MAPPER.createObjectNode().put("mtime", System.currentTimeMillis()).put("where", uri));
    }

    /** The time and the place of an intent; null where the value is none. */
    static Stated stated(Entry entry) {
        try {
            JsonNode facts = MAPPER.readTree(entry.value());
            boolean isIntent = facts.path("mtime").isIntegralNumber() && facts.path("where").isTextual();
            return isIntent ? new Stated(facts.path("mtime").longValue(), facts.path("where").textValue()) : null;
        } catch (IOException noIntent) {
            return null;
        }
    }

    /** What an intent says. */
    record Stated(long mtimeMs, String uri) {}
}
