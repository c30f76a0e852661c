package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.QuorumUnavailableException;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIOException;

/**
 * Directories and files as transactions on keys. Guarantees:
 *
 * <ol>
 *   <li>Each change is one transaction: seen whole, or not at all.</li>
 *   <li>Of several that create one file, one succeeds.</li>
 *   <li>A file never stands without its directories: every change compares the version of the directory around it.</li>
 *   <li>What another writer changed between the look and the transaction makes the operation look again.</li>
 * </ol>
 */
public final class Namespace {
    /** So often an operation looks again because others changed what it looked at. */
    static final int LOOKS_MAX = 1000;

    private final KeySpace space;
    private final Blobs blobs;
    private final Fence fence;

    /** Small files that were put last are known by their versions: as many as Spark keeps of a log, and some more. */
    private static final int PUT_MAX = 256;

    /** The directory that was found last: of most writers also that of their next file. */
    private volatile Found lastDirectory;

    /** By key, the versions of small files that were put here. Others may have changed them since. */
    private final Map<String, Long> put = new LinkedHashMap<>();

    private final LateDeletions late = new LateDeletions();

    /** {@code fence} is part of every change. */
    public Namespace(KeySpace space, Blobs blobs, Fence fence) {
        this.space = space;
        this.blobs = blobs;
        this.fence = fence;
    }

    /** Commits a change, if the fence lets this writer make one. */
    TxnResult commit(Txn txn, Witness witness) throws IOException {
        fence.addTo(txn);
        TxnResult result = space.commit(txn, witness);
        if (!result.succeeded()) {
            fence.explain(result);
        }
        return result;
    }

    KeySpace space() {
        return space;
    }

    Blobs blobs() {
        return blobs;
    }

    /** Looks whether this writer may change anything still; an IOException tells that it may not. */
    void confirmWriter() throws IOException {
        fence.confirm();
    }

    // --- reads -------------------------------------------------------------------------------------------------------

    Found find(Location at) throws IOException {
        if (late.holds(at)) {
            deleteWhatWaits();
        }
        if (at.isRoot()) {
            return new Found(at, Node.directory(0), KeySpace.ABSENT, null);
        }
        Optional<Entry> entry = space.get(at.key());
        if (entry.isEmpty()) {
            return new Found(at, null, KeySpace.ABSENT, null);
        }
        return found(at, entry.get());
    }

    private static Found found(Location at, Entry entry) throws IOException {
        return new Found(at, Node.decode(entry), entry.version(), entry.value());
    }

    /** What stands there; FileNotFoundException where nothing does. */
    Found require(Location at) throws IOException {
        Found found = find(at);
        if (!found.exists()) {
            throw new FileNotFoundException(at + " does not exist");
        }
        return found;
    }

    /** What lies directly in a directory, by name. */
    List<Found> children(Location directory) throws IOException {
        return all(directory, ListRequest.children(directory.prefix(), true), Integer.MAX_VALUE, Long.MAX_VALUE).rows();
    }

    /**
     * What a list gives. {@code asOf} is the version of its first page: a compare of the range with it fails when anything
     * was added or changed since, on whichever page. {@code isWhole} is false where a bound ended the list.
     */
    record Listing(List<Found> rows, long asOf, boolean isWhole) {}

    /** Lists until the end, or until a page after which there are more rows, or bytes of values, than the bounds. */
    Listing all(Location directory, ListRequest request, int rowsMax, long bytesMax) throws IOException {
        deleteWhatWaits();
        List<Found> rows = new ArrayList<>();
        long bytes = 0;
        Page page = space.list(request);
        long asOf = page.version();
        while (true) {
            for (Entry entry : page.entries()) {
                rows.add(found(directory.at(entry.key()), entry));
                bytes += entry.value().length;
            }
            if (!page.more() || rows.size() > rowsMax || bytes > bytesMax) {
                return new Listing(rows, asOf, !page.more() && rows.size() <= rowsMax && bytes <= bytesMax);
            }
            page = space.list(request.after(page.last()));
        }
    }

    // --- directories -------------------------------------------------------------------------------------------------

    /** The directories above a place: the deepest that exists, and those that are missing, outermost first. */
    record Ancestors(Found deepest, List<Location> missing) {
        /** The part of a transaction that keeps the existing one, and makes the missing ones. */
        void addTo(Txn txn, long nowMs) {
            if (!deepest.location().isRoot()) {
                txn.compare(deepest.location().key(), deepest.version());
            }
            for (Location directory : missing) {
                txn.compare(directory.key(), KeySpace.ABSENT).put(directory.key(), Node.directory(nowMs).encode());
            }
        }
    }

    Ancestors ancestors(Location at) throws IOException {
        List<Location> missing = new ArrayList<>();
        Location directory = at.parent();
        while (true) {
            Found found = find(directory);
            if (found.isFile()) {
                throw new ParentNotDirectoryException(at + ": " + directory + " is a file");
            }
            if (found.isDirectory()) {
                lastDirectory = found;
                return new Ancestors(found, missing);
            }
            missing.add(0, directory);
            directory = directory.parent();
        }
    }

    /** Makes a directory, and those above it that are missing. One that exists is left as it is. */
    void makeDirectories(Location at) throws IOException {
        for (int look = 0; look < LOOKS_MAX; look++) {
            Found found = find(at);
            if (found.isDirectory()) {
                return;
            }
            if (found.isFile()) {
                throw new FileAlreadyExistsException(at + " is a file");
            }
            long nowMs = System.currentTimeMillis();
            byte[] value = Node.directory(nowMs).encode();
            Txn txn = new Txn();
            ancestors(at).addTo(txn, nowMs);
            txn.compare(at.key(), KeySpace.ABSENT).put(at.key(), value);
            if (commit(txn, Witness.put(at.key(), value)).succeeded()) {
                return;
            }
        }
        throw contended(at);
    }

    // --- files -------------------------------------------------------------------------------------------------------

    /** What is true of the place where a file is going to be: read when it is opened for writing, compared when it is closed. */
    record Plan(Found before, Ancestors ancestors) {}

    /**
     * Checks that a file may be put there. Throws FileAlreadyExistsException for a directory, and for a file without
     * {@code overwrite}; FileNotFoundException for a directory that is missing without {@code makesDirectories};
     * ParentNotDirectoryException.
     */
    Plan plan(Location at, boolean overwrite, boolean makesDirectories) throws IOException {
        Found before = find(at);
        if (before.isDirectory()) {
            throw new FileAlreadyExistsException(at + " is a directory");
        }
        if (before.isFile() && !overwrite) {
            throw new FileAlreadyExistsException(at + " exists");
        }
        Ancestors ancestors = ancestors(at);
        if (!makesDirectories && !ancestors.missing().isEmpty()) {
            throw new FileNotFoundException(at + ": directory " + ancestors.missing().get(0) + " does not exist");
        }
        return new Plan(before, ancestors);
    }

    /**
     * A plan without a look where none is needed: nothing is there, and the directory is the one that was found last. Where
     * that is wrong, {@link #putFile} makes a plan with a look.
     */
    Plan expect(Location at, boolean overwrite) throws IOException {
        Found directory = lastDirectory;
        if (directory == null || !directory.location().equals(at.parent())) {
            return plan(at, overwrite, true);
        }
        return new Plan(new Found(at, null, KeySpace.ABSENT, null), new Ancestors(directory, List.of()));
    }

    /**
     * Puts a file where {@code plan} was made for, or, where others were faster, as a new plan allows. {@code intent} is that
     * of the blob with the content, or null. Until it returns nothing is seen of the file. What {@link #deleteLater} was given
     * goes with it.
     */
    void putFile(Plan plan, Node file, Blobs.Intent intent, boolean overwrite, boolean makesDirectories) throws IOException {
        Location at = plan.before().location();
        for (int look = 0; look < LOOKS_MAX; look++) {
            byte[] value = file.encode();
            Txn txn = new Txn();
            plan.ancestors().addTo(txn, file.mtimeMs());
            txn.compare(at.key(), plan.before().version()).put(at.key(), value);
            if (intent != null) {
                txn.compare(intent.key(), intent.version()).delete(intent.key());
            }
            List<Blobs.Garbage> garbage = blobs.discard(txn, plan.before());
            Map<String, Long> deleted = late.addTo(txn, at);
            TxnResult result = commit(txn, Witness.put(at.key(), value));
            late.answered(deleted, result);
            if (result.succeeded()) {
                blobs.remove(garbage);
                if (intent == null && result.version() != 0) {
                    note(at, result.version());
                }
                return;
            }
            if (intent != null && result.inTheWay().contains(intent.key())) {
                throw new PathIOException(at.toString(), "its content was removed as an orphan before the file was closed, "
                        + "since raftlake.fs.orphan.age.ms is too short for a write that takes so long; or the file was put, "
                        + "the answer was lost, and another process has moved or replaced the file since");
            }
            plan = plan(at, overwrite, makesDirectories);
        }
        throw contended(at);
    }

    private void note(Location at, long version) {
        synchronized (put) {
            put.remove(at.key());
            put.put(at.key(), version);
            if (put.size() > PUT_MAX) {
                put.remove(put.keySet().iterator().next());
            }
        }
    }

    /** The version at which a small file was put here; nothing where that is not known. It is told once. */
    OptionalLong takePut(Location at) {
        synchronized (put) {
            Long version = put.remove(at.key());
            return version == null ? OptionalLong.empty() : OptionalLong.of(version);
        }
    }

    /**
     * Deletes a small file that was put here at this version: with the next file that is put, or before anybody looks here at the
     * file or lists a directory. Other writers see the file until then.
     */
    void deleteLater(Location at, long version) throws IOException {
        if (late.add(at, version)) {
            deleteWhatWaits();
        }
    }

    private void deleteWhatWaits() throws IOException {
        while (true) {
            Txn txn = new Txn();
            Map<String, Long> deleted = late.addTo(txn, null);
            if (deleted.isEmpty()) {
                return;
            }
            Map.Entry<String, Long> first = deleted.entrySet().iterator().next();
            late.answered(deleted, commit(txn, Witness.gone(first.getKey(), first.getValue())));
        }
    }

    static IOException contended(Location at) {
        return new QuorumUnavailableException(
                at + ": other writers changed it " + LOOKS_MAX + " times between a look and a change; nothing was changed");
    }
}
