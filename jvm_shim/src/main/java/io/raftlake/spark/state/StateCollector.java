package io.raftlake.spark.state;

import io.raftlake.spark.checkpoint.Checkpoint;
import io.raftlake.spark.fs.Location;
import io.raftlake.spark.fs.QuorumFiles;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Keys;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Removes the state of checkpoints that are gone: first the key, in the next round the topics that no key names.
 *
 * <p>Topics are listed before keys, and a key is there before its topics: a topic whose id no listed key has is garbage. A
 * checkpoint that was renamed meanwhile could be missed on both pages of a list; then a key was put since, and a transaction
 * that compares the keys finds it.
 */
final class StateCollector {
    /** In one JVM the garbage is looked for so often, and not in the first hour. */
    static final long PAUSE_MS = 3_600_000;

    /** When it was looked for last, in ms since 1970. */
    static final String MARK = "/fs-state-collected";

    private static final Logger LOG = LoggerFactory.getLogger(StateCollector.class);
    private static final Map<String, Long> LAST_MS = new ConcurrentHashMap<>();

    private final QuorumFiles files;
    private final KeySpace space;
    private final Logs logs;

    StateCollector(QuorumFiles files, Logs logs) {
        this.files = files;
        this.space = files.space();
        this.logs = logs;
    }

    /** Whether an hour has gone by since the answer was true, or since the first call. */
    static boolean isDue(String space, long nowMs) {
        boolean[] isDue = {false};
        LAST_MS.compute(space, (name, last) -> {
            isDue[0] = last != null && nowMs - last >= PAUSE_MS;
            return last == null || isDue[0] ? nowMs : last;
        });
        return isDue[0];
    }

    /** How many topics were removed. {@code nowMs} is the time of day, in ms since 1970. */
    int collect(long nowMs) throws IOException {
        List<String> topics = logs.topics(StateTopics.PREFIX);
        if (topics.isEmpty()) {
            return 0;
        }
        Set<String> live = new HashSet<>();
        ListRequest request = ListRequest.deep(StateTopics.ROOT, true);
        Page page = space.list(request);
        long asOf = page.version();
        while (true) {
            for (Entry entry : page.entries()) {
                live.add(StateTopics.Owner.decode(entry.value()).id());
                removeKeyOfNothing(entry);
            }
            if (!page.more()) {
                break;
            }
            page = space.list(request.after(page.last()));
        }
        List<String> garbage = topics.stream().filter(topic -> !live.contains(id(topic))).toList();
        return garbage.isEmpty() || !isUnchanged(asOf, nowMs) ? 0 : remove(garbage);
    }

    private static String id(String topic) {
        int end = Math.min(topic.length(), StateTopics.PREFIX.length() + StateTopics.ID_LENGTH);
        return topic.substring(StateTopics.PREFIX.length(), end);
    }

    private void removeKeyOfNothing(Entry entry) throws IOException {
        Location root = Location.ofStateKey(entry.key());
        Optional<String> query = Checkpoint.queryAt(files, root.toHadoop());
        if (query.isEmpty() || !query.get().equals(StateTopics.Owner.decode(entry.value()).query())) {
            Txn txn = new Txn().compare(entry.key(), entry.version()).delete(entry.key());
            space.commit(txn, Witness.gone(entry.key(), entry.version()));
            LOG.info("the state of {} goes: the checkpoint is gone", root);
        }
    }

    /** Whether no key was put since the list. */
    private boolean isUnchanged(long asOf, long nowMs) throws IOException {
        byte[] mark = Keys.utf8(Long.toString(nowMs));
        Txn txn = new Txn().comparePrefix(StateTopics.ROOT, asOf).put(MARK, mark);
        return space.commit(txn, Witness.put(MARK, mark)).succeeded();
    }

    private int remove(List<String> topics) throws IOException {
        for (String topic : topics) {
            logs.deleteTopic(topic);
        }
        LOG.info("removed {} topics of state whose checkpoints are gone", topics.size());
        return topics.size();
    }
}
