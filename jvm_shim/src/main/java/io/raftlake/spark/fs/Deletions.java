package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.ListRequest;
import io.raftlake.spark.quorum.Txn;
import io.raftlake.spark.quorum.TxnResult;
import io.raftlake.spark.quorum.Witness;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;

/**
 * Deletes files, and directories with all that is in them.
 *
 * <p>A directory of at most {@link KeySpace#RANGE_KEYS_MAX} entries, of which at most {@value #BLOBS_MAX} are blobs, and of
 * 32 MiB of small files, goes in one transaction. A larger one is made smaller first, files before the directories around
 * them.
 */
final class Deletions {
    /** Each takes one operation of a transaction, beside the deletion of the range. */
    static final int BLOBS_MAX = 500;

    /** Bytes of values that are read to find the blobs of a directory. */
    private static final long BYTES_MAX = 32L << 20;

    private static final int SLICE = 500;

    private final Namespace names;

    Deletions(Namespace names) {
        this.names = names;
    }

    /** False where nothing was there. PathIsNotEmptyDirectoryException where {@code recursive} would have been needed. */
    boolean delete(Location at, boolean recursive) throws IOException {
        OptionalLong put = names.takePut(at);
        if (put.isPresent() && deletePut(at, put.getAsLong())) {
            return true;
        }
        for (int look = 0; look < Namespace.LOOKS_MAX; look++) {
            Found found = names.find(at);
            if (!found.exists()) {
                return false;
            }
            if (found.isFile()) {
                if (deleteFiles(List.of(found))) {
                    return true;
                }
            } else if (recursive) {
                return deleteTree(at);
            } else if (deleteEmpty(found)) {
                return true;
            }
        }
        throw Namespace.contended(at);
    }

    /** Deletes a file, {@link Namespace#deleteLater later} where that is a small one that was put here. */
    void deleteLater(Location at) throws IOException {
        OptionalLong put = names.takePut(at);
        if (put.isPresent()) {
            names.deleteLater(at, put.getAsLong());
        } else {
            delete(at, false);
        }
    }

    /** Deletes a small file without a look; false where it has changed since it was put. */
    private boolean deletePut(Location at, long version) throws IOException {
        Txn txn = new Txn().compare(at.key(), version).delete(at.key());
        return names.commit(txn, Witness.gone(at.key(), version)).succeeded();
    }

    private boolean deleteEmpty(Found directory) throws IOException {
        Location at = directory.location();
        if (at.isRoot()) {
            if (!names.space().list(ListRequest.deep(at.prefix(), false).limit(1)).entries().isEmpty()) {
                throw new PathIsNotEmptyDirectoryException(at.toString());
            }
            return true;
        }
        Txn txn = new Txn().compare(at.key(), directory.version()).comparePrefix(at.prefix(), 0).delete(at.key());
        TxnResult result = names.commit(txn, Witness.gone(at.key(), directory.version()));
        if (result.inTheWay().contains(at.prefix())) {
            throw new PathIsNotEmptyDirectoryException(at.toString());
        }
        return result.succeeded();
    }

    /** Deletes these files in one transaction; false where one of them has changed. */
    private boolean deleteFiles(List<Found> files) throws IOException {
        Txn txn = new Txn();
        List<Blobs.Garbage> garbage = new ArrayList<>();
        for (Found file : files) {
            txn.compare(file.location().key(), file.version()).delete(file.location().key());
            garbage.addAll(names.blobs().discard(txn, file));
        }
        Found first = files.get(0);
        Witness gone = Witness.gone(first.location().key(), first.version());
        if (!names.commit(txn, Blobs.witness(garbage, gone)).succeeded()) {
            return false;
        }
        names.blobs().remove(garbage);
        return true;
    }

    /** False where the directory is gone. */
    private boolean deleteTree(Location at) throws IOException {
        for (int look = 0; look < Namespace.LOOKS_MAX; look++) {
            Found directory = names.find(at);
            if (!directory.isDirectory()) {
                return false;
            }
            Namespace.Listing below = names.all(at, ListRequest.deep(at.prefix(), true), KeySpace.RANGE_KEYS_MAX, BYTES_MAX);
            long blobs = below.rows().stream().filter(found -> found.node().isBlob()).count();
            if (!below.isWhole() || blobs > BLOBS_MAX) {
                shrink(at);
                look = 0;
            } else if (deleteWhole(directory, below)) {
                return true;
            }
        }
        throw Namespace.contended(at);
    }

    private boolean deleteWhole(Found directory, Namespace.Listing listing) throws IOException {
        Location at = directory.location();
        List<Found> below = listing.rows();
        if (at.isRoot() && below.isEmpty()) {
            return true;
        }
        Txn txn = new Txn().comparePrefix(at.prefix(), below.isEmpty() ? 0 : listing.asOf());
        if (!at.isRoot()) {
            txn.compare(at.key(), directory.version()).delete(at.key());
        }
        List<Blobs.Garbage> garbage = new ArrayList<>();
        if (!below.isEmpty()) {
            txn.deletePrefix(at.prefix());
            for (Found found : below) {
                garbage.addAll(names.blobs().discard(txn, found));
            }
        }
        Found witness = at.isRoot() ? below.get(0) : directory;
        Witness gone = Witness.gone(witness.location().key(), witness.version());
        if (!names.commit(txn, Blobs.witness(garbage, gone)).succeeded()) {
            return false;
        }
        names.blobs().remove(garbage);
        return true;
    }

    /** Deletes some of what is in a directory: files of one page, or all that is in its first directory. */
    private void shrink(Location at) throws IOException {
        ListRequest request = ListRequest.children(at.prefix(), true).limit(SLICE);
        List<Found> some = names.all(at, request, 0, 0).rows();
        List<Found> files = some.stream().filter(Found::isFile).limit(SLICE).toList();
        if (!files.isEmpty()) {
            deleteFiles(files);
            return;
        }
        for (Found found : some) {
            if (found.isDirectory()) {
                deleteTree(found.location());
                return;
            }
        }
    }
}
