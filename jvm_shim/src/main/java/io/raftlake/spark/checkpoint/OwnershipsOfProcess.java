package io.raftlake.spark.checkpoint;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The ownerships of this process, one for each run and checkpoint.
 *
 * <p>Those of drivers are kept while they are among the last runs of their checkpoint: a thread that is left of an older run has
 * to find that it is over, and must not take the checkpoint again. Those of tasks live as long as somebody uses them: each read of
 * state is a run of its own, and a new look costs one request.
 */
final class OwnershipsOfProcess {
    /** Threads of a run end with it, or soon after. */
    static final int RUNS_KEPT = 8;

    private final Map<String, Map<String, Ownership>> drivers = new HashMap<>();
    private final Map<String, WeakReference<Ownership>> tasks = new HashMap<>();

    /** The one that is known of this run and checkpoint; {@code fresh} where there is none. */
    synchronized Ownership known(String quorum, Run run, Ownership fresh) {
        String checkpoint = quorum + " " + fresh.key();
        return run.isOfDriver() ? ofDriver(checkpoint, run.id(), fresh) : ofTasks(checkpoint + " " + run.id(), fresh);
    }

    private Ownership ofDriver(String checkpoint, String run, Ownership fresh) {
        Map<String, Ownership> runs = drivers.computeIfAbsent(checkpoint, absent -> new LinkedHashMap<>());
        Ownership known = runs.putIfAbsent(run, fresh);
        if (runs.size() > RUNS_KEPT) {
            runs.remove(runs.keySet().iterator().next());
        }
        return known == null ? fresh : known;
    }

    private Ownership ofTasks(String what, Ownership fresh) {
        WeakReference<Ownership> reference = tasks.get(what);
        Ownership known = reference == null ? null : reference.get();
        if (known != null) {
            return known;
        }
        tasks.values().removeIf(each -> each.refersTo(null));
        tasks.put(what, new WeakReference<>(fresh));
        return fresh;
    }

    /** How many are kept. */
    synchronized int size() {
        return tasks.size() + drivers.values().stream().mapToInt(Map::size).sum();
    }
}
