package io.raftlake.spark.checkpoint;

import io.raftlake.spark.fs.Fence;
import io.raftlake.spark.fs.Location;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One run and one checkpoint: the owner key {@code /fs-owner/<pipeline>/<path>}, whose version every change of the run
 * compares.
 *
 * <p>The driver of a run puts the key at its first call, and never again: the run that came last owns the checkpoint. Tasks
 * look whether the key names their run. A run that has lost the checkpoint stays fenced, also in files that it opens later.
 */
final class Ownership implements Fence {
    static final String ROOT = "/fs-owner/";

    private static final Logger LOG = LoggerFactory.getLogger(Ownership.class);
    private static final int LOOKS_MAX = 1000;
    private static final long UNKNOWN = -1;

    /** So often at most a commit of state looks whether its run still owns the checkpoint. */
    private static final long CONFIRM_NS = 1_000_000_000L;

    /** The directories of a checkpoint into which the driver alone writes, a file for each batch. */
    private static final Set<String> LOGS = Set.of("offsets", "commits");

    /** The directory of those into which the driver writes for one source each, some of them a file for each batch. */
    private static final String SOURCES = "sources";

    private static final OwnershipsOfProcess OF_PROCESS = new OwnershipsOfProcess();

    private final KeySpace space;
    private final CheckpointRoot root;
    private final Run run;
    private final String key;
    private final Map<Path, NewestBatch> newest = new ConcurrentHashMap<>();
    private volatile EpochEnds ends;
    private long version = UNKNOWN;
    private boolean isConfirmed;
    private long confirmedNs;
    private String lostTo;

    Ownership(KeySpace space, CheckpointRoot root, Run run) throws IOException {
        this.space = space;
        this.root = root;
        this.run = run;
        this.key = key(root.path());
    }

    /** The one of this process, so that a run takes a checkpoint once, whatever opens files for it. */
    static Ownership of(KeySpace space, CheckpointRoot root, Run run) throws IOException {
        return OF_PROCESS.known(space.describe(), run, new Ownership(space, root, run));
    }

    /** The checkpoint, by its owner key. */
    String key() {
        return key;
    }

    static String key(Path root) throws IOException {
        Location at = Location.of(root.toUri().getAuthority(), root.toUri().getPath());
        return ROOT + at.key().substring(Location.ROOT.length());
    }

    /**
     * Before a call of the run. The driver owns the checkpoint afterwards: what it reads from now on, no older run changes.
     * CheckpointFencedException where the run is known to have lost it.
     */
    synchronized void enter() throws IOException {
        requireNotLost();
        if (version == UNKNOWN && run.isOfDriver()) {
            take();
        }
    }

    private void take() throws IOException {
        for (int look = 0; look < LOOKS_MAX; look++) {
            Optional<Entry> before = space.get(key);
            byte[] mine = Owner.here(run).encode();
            Txn txn = new Txn().compare(key, before.map(Entry::version).orElse(KeySpace.ABSENT)).put(key, mine);
            TxnResult result = space.commit(txn, Witness.put(key, mine));
            if (result.succeeded()) {
                version = result.version() == 0 ? readBack(mine) : result.version();
                ends = EpochEnds.of(this, run);
                before.ifPresent(older -> LOG.info("{}: run {} of query {} takes over from {}", root.path(), run.id(),
                        run.query(), Owner.decode(older.value()).describe()));
                return;
            }
        }
        throw new QuorumUnavailableException(
                root.path() + ": other runs took the checkpoint " + LOOKS_MAX + " times while this one tried to");
    }

    /** The version of a put of which no answer told. */
    private long readBack(byte[] mine) throws IOException {
        Optional<Entry> found = space.get(key);
        if (found.isEmpty() || !Arrays.equals(found.get().value(), mine)) {
            throw lost(found);
        }
        return found.get().version();
    }

    @Override
    public synchronized void addTo(Txn txn) throws IOException {
        enter();
        if (version == UNKNOWN) {
            look();
        }
        txn.compare(key, version);
    }

    /** A checkpoint that nobody took is of a driver that takes none: nobody is to take it meanwhile. */
    private void look() throws IOException {
        Optional<Entry> found = space.get(key);
        if (found.isPresent() && !isMine(found.get())) {
            throw lost(found);
        }
        version = found.map(Entry::version).orElse(KeySpace.ABSENT);
    }

    @Override
    public synchronized void explain(TxnResult refused) throws IOException {
        if (!refused.inTheWay().contains(key)) {
            return;
        }
        requireNotLost();
        Optional<Entry> found = space.get(key);
        if (run.isOfDriver() || found.isEmpty() || !isMine(found.get())) {
            throw lost(found);
        }
        version = found.get().version();
    }

    @Override
    public synchronized void confirm() throws IOException {
        requireNotLost();
        long askedNs = System.nanoTime();
        Optional<Entry> found = space.get(key);
        boolean isLost = run.isOfDriver()
                ? found.map(Entry::version).orElse(KeySpace.ABSENT) != version
                : found.isPresent() && !isMine(found.get());
        if (isLost) {
            throw lost(found);
        }
        isConfirmed = true;
        confirmedNs = askedNs;
    }

    @Override
    public synchronized void confirmNowAndThen() throws IOException {
        requireNotLost();
        if (!isConfirmed || System.nanoTime() - confirmedNs > CONFIRM_NS) {
            confirm();
        }
    }

    /** Of the driver: whoever finds a file that it did not write asks whose checkpoint this is. Readers in tasks may be others. */
    void confirmWhatWasFound() throws IOException {
        if (run.isOfDriver()) {
            confirm();
        }
    }

    /** Of the driver, in the logs that no task writes. */
    Optional<NewestBatch> newestIn(Path directory) {
        boolean isLog = root.path().equals(directory.getParent()) && LOGS.contains(directory.getName());
        return (isLog || isLogOfSource(directory)) && run.isOfDriver()
                ? Optional.of(newest.computeIfAbsent(directory, log -> new NewestBatch()))
                : Optional.empty();
    }

    /** Of the driver: whether one of its sources keeps there what each batch has. */
    boolean isLogOfSource(Path directory) {
        return run.isOfDriver() && new Path(root.path(), SOURCES).equals(directory.getParent());
    }

    /** Whether a file lies directly in this directory of the checkpoint. */
    boolean isIn(String directory, Path file) {
        return new Path(root.path(), directory).equals(file.getParent());
    }

    /** Whether this is the quorum of the checkpoint: its owner key names this run. */
    boolean isNamedIn(KeySpace other) throws IOException {
        return other.get(key).filter(this::isMine).isPresent();
    }

    /** Of the driver that owns the checkpoint: what its sink wants to have decided. */
    Optional<EpochEnds> ends() {
        return Optional.ofNullable(ends);
    }

    private boolean isMine(Entry entry) {
        return Owner.decode(entry.value()).run().equals(run.id());
    }

    private CheckpointFencedException lost(Optional<Entry> found) {
        lostTo = found.map(entry -> Owner.decode(entry.value()).describe()).orElse("nobody: its owner key was deleted");
        return fenced();
    }

    private void requireNotLost() throws CheckpointFencedException {
        if (lostTo != null) {
            throw fenced();
        }
    }

    private CheckpointFencedException fenced() {
        return new CheckpointFencedException(root.path().toString(), "run " + run.id() + " no longer owns this checkpoint of "
                + "query " + root.query() + ", and nothing was written. The owner is " + lostTo
                + ". The run that started last goes on; to go on here instead, start the query here again");
    }
}
