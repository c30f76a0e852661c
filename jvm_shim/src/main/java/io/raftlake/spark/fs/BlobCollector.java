package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Removes orphans: blobs that an intent has named for longer than {@code raftlake.fs.orphan.age.ms}.
 *
 * <p>The collector first rewrites the intent. From then on the writer of the blob, should it still live, can no longer put its
 * pointer: that transaction compares the intent's version. Only then the blob goes, and at last the intent.
 */
public final class BlobCollector {
    /** In one JVM the orphans of a pipeline are looked for at most so often. */
    static final long PAUSE_MS = 3_600_000;

    private static final Logger LOG = LoggerFactory.getLogger(BlobCollector.class);
    private static final Map<String, Long> STARTED_AT_MS = new ConcurrentHashMap<>();

    private final KeySpace space;
    private final BlobStore store;
    private final long ageMs;
    private final LongSupplier clock;
    private final Executor background;

    public BlobCollector(KeySpace space, BlobStore store, long ageMs) {
        this(space, store, ageMs, System::currentTimeMillis, BlobCollector::startThread);
    }

    /** {@code clock}: the time of day, in ms since 1970. {@code background} runs the looks for orphans, apart from the writer. */
    BlobCollector(KeySpace space, BlobStore store, long ageMs, LongSupplier clock, Executor background) {
        this.space = space;
        this.store = store;
        this.ageMs = ageMs;
        this.clock = clock;
        this.background = background;
    }

    private static void startThread(Runnable look) {
        Thread thread = new Thread(look, "raftlake-blob-collector");
        thread.setDaemon(true);
        thread.start();
    }

    /** Collects in the background, unless this JVM did so within the hour. */
    void startIfDue(String pipeline) {
        String what = space.describe() + " " + pipeline;
        long nowMs = clock.getAsLong();
        Long now = nowMs;
        Long due = STARTED_AT_MS.compute(what, (key, last) -> last == null || nowMs - last >= PAUSE_MS ? now : last);
        if (due != now) {
            return;
        }
        background.execute(() -> collectQuietly(pipeline, nowMs));
    }

    private void collectQuietly(String pipeline, long nowMs) {
        try {
            int removed = collect(pipeline, nowMs);
            if (removed > 0) {
                LOG.info("removed {} orphaned blobs of pipeline {}", removed, pipeline);
            }
        } catch (IOException error) {
            LOG.warn("orphaned blobs of pipeline {} stay until the next look: {}", pipeline, error.toString());
        }
    }

    /** How many blobs were removed. {@code nowMs} is the time of day, in ms since 1970. */
    public int collect(String pipeline, long nowMs) throws IOException {
        int removed = 0;
        ListRequest request = ListRequest.deep(Blobs.prefix(pipeline), true);
        Page page;
        do {
            page = space.list(request);
            for (Entry entry : page.entries()) {
                Blobs.Stated stated = Blobs.stated(entry);
                if (stated != null && nowMs - stated.mtimeMs() > ageMs && remove(entry, stated.uri())) {
                    removed++;
                }
            }
            request = request.after(page.last());
        } while (page.more());
        return removed;
    }

    private boolean remove(Entry entry, String uri) throws IOException {
        if (!Blobs.claim(space, new Blobs.Intent(entry.key(), entry.version(), uri)) || !store.delete(uri)) {
            return false;
        }
        space.commit(new Txn().delete(entry.key()), at -> at.get(entry.key()).isEmpty());
        return true;
    }
}
