package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Keys;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Page;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;

/**
 * Renames files and directories, each in one transaction. A directory may have at most {@value #DESCENDANTS_MAX} entries below
 * it, whose values have at most {@link KeySpace#TXN_VALUE_BYTES_MAX} bytes. The bytes of blobs
 * stay where they are, and keys of state ({@link Location#stateKey}) move along.
 */
final class Moves {
    static final int DESCENDANTS_MAX = 500;

    private final Namespace names;

    Moves(Namespace names) {
        this.names = names;
    }

    /**
     * Renames {@code source} to exactly {@code target}. FileNotFoundException: no source, or no directory around the target.
     * FileAlreadyExistsException: a target without {@code overwrite}, or the source itself. With {@code overwrite} a file
     * takes the place of a file, and a directory that of an empty directory.
     */
    void move(Location source, Location target, boolean overwrite) throws IOException {
        for (int look = 0; look < Namespace.LOOKS_MAX; look++) {
            if (tryToMove(source, target, overwrite)) {
                return;
            }
        }
        throw Namespace.contended(source);
    }

    private boolean tryToMove(Location source, Location target, boolean overwrite) throws IOException {
        Found from = names.require(source);
        if (source.isRoot() || target.isBelow(source)) {
            throw new PathIOException(source.toString(), "a directory cannot be renamed to a place in itself: " + target);
        }
        if (source.equals(target)) {
            throw new FileAlreadyExistsException(source + " is both names");
        }
        if (overwrite && source.isBelow(target)) {
            throw new PathIsNotEmptyDirectoryException(target.toString());
        }
        Found to = names.find(target);
        requirePlace(from, to, overwrite);
        Txn txn = new Txn().compare(source.key(), from.version()).compare(target.key(), to.version());
        addDirectory(txn, target);
        txn.delete(source.key()).put(target.key(), from.value());
        if (to.isDirectory()) {
            txn.comparePrefix(target.prefix(), 0);
        }
        if (from.isDirectory()) {
            addDescendants(txn, source, target);
            addState(txn, source, target);
        }
        List<Blobs.Garbage> garbage = names.blobs().discard(txn, to);
        TxnResult result = names.commit(txn, Blobs.witness(garbage, Witness.put(target.key(), from.value())));
        if (!result.succeeded() && result.inTheWay().contains(target.prefix())) {
            throw new PathIsNotEmptyDirectoryException(target.toString());
        }
        if (result.succeeded()) {
            names.blobs().remove(garbage);
        }
        return result.succeeded();
    }

    private static void requirePlace(Found from, Found to, boolean overwrite) throws IOException {
        if (!to.exists()) {
            return;
        }
        if (to.location().isRoot() || !overwrite) {
            throw new FileAlreadyExistsException(to.location() + " exists");
        }
        if (from.isDirectory() != to.isDirectory()) {
            throw new PathIOException(
                    from.location().toString(), "a file and a directory cannot take each other's place: " + to.location());
        }
    }

    private void addDirectory(Txn txn, Location target) throws IOException {
        Found directory = names.find(target.parent());
        if (!directory.exists()) {
            throw new FileNotFoundException(target + ": directory " + target.parent() + " does not exist");
        }
        if (directory.isFile()) {
            throw new ParentNotDirectoryException(target + ": " + target.parent() + " is a file");
        }
        if (!directory.location().isRoot()) {
            txn.compare(directory.location().key(), directory.version());
        }
    }

    private void addDescendants(Txn txn, Location source, Location target) throws IOException {
        Namespace.Listing listing =
                names.all(source, ListRequest.deep(source.prefix(), true), DESCENDANTS_MAX, KeySpace.TXN_VALUE_BYTES_MAX);
        List<Found> below = listing.rows();
        if (below.isEmpty()) {
            txn.comparePrefix(source.prefix(), 0);
            return;
        }
        long bytes = below.stream().mapToLong(found -> found.value().length).sum();
        if (!listing.isWhole()) {
            throw new PathIOException(source.toString(), "a directory is renamed in one transaction: at most " + DESCENDANTS_MAX
                    + " entries below it, and " + KeySpace.TXN_VALUE_BYTES_MAX + " bytes of small files; it has "
                    + (below.size() > DESCENDANTS_MAX ? "more entries" : bytes + " bytes"));
        }
        for (Found found : below) {
            String name = found.location().key().substring(source.key().length());
            String key = target.key() + name;
            if (Keys.utf8(key).length > KeySpace.KEY_BYTES_MAX) {
                throw new PathIOException(found.location().toString(), "its key below " + target + " would be too long");
            }
            txn.compare(found.location().key(), found.version()).put(key, found.value());
        }
        txn.comparePrefix(source.prefix(), listing.asOf()).deletePrefix(source.prefix());
    }

    /** The keys of state go with the checkpoints that they are of. */
    private void addState(Txn txn, Location source, Location target) throws IOException {
        String below = source.stateKey() + "/";
        Optional<Entry> own = names.space().get(source.stateKey());
        txn.compare(source.stateKey(), own.map(Entry::version).orElse(KeySpace.ABSENT));
        if (own.isPresent()) {
            txn.delete(source.stateKey()).put(target.stateKey(), own.get().value());
        }
        Page page = names.space().list(ListRequest.deep(below, true));
        for (Entry entry : page.entries()) {
            txn.put(target.stateKey() + entry.key().substring(source.stateKey().length()), entry.value());
        }
        txn.comparePrefix(below, page.entries().isEmpty() ? 0 : page.version());
        if (!page.entries().isEmpty()) {
            txn.deletePrefix(below);
        }
    }
}
