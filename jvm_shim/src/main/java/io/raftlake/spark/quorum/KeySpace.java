package io.raftlake.spark.quorum;

import java.io.IOException;
import java.util.Optional;

/**
 * The quorum's key-value space. An implementation keeps these guarantees:
 *
 * <ol>
 *   <li>Reads are linearizable: what was committed before a call began is seen by the call.</li>
 *   <li>A transaction happens whole or not at all, and only where all of its compares hold.</li>
 *   <li>{@link #commit} tells that a transaction happened, that it did not, or throws
 *       {@link UnknownOutcomeException}. An outcome that an answer left open is read back first.</li>
 *   <li>Every call ends within the deadline that the implementation was made with.</li>
 * </ol>
 *
 * <p>Errors are {@link java.io.IOException}s: {@link QuorumUnavailableException} where nothing was changed in time,
 * {@link RefusedException} where trying again does not help, {@link UnknownOutcomeException}, and
 * {@link java.io.InterruptedIOException} where the calling thread was interrupted.
 */
public interface KeySpace {
    /** Bytes of the UTF-8 form of a key. */
    int KEY_BYTES_MAX = 1024;

    /** Bytes of one value. */
    int VALUE_BYTES_MAX = 1 << 20;

    /** Compares of one transaction; operations likewise. */
    int PARTS_MAX = 1024;

    /** Bytes of the values of one transaction that surely fit: a node takes 8 MiB with keys and heads. */
    int TXN_VALUE_BYTES_MAX = 6 << 20;

    /** Keys that one operation on a range deletes, and that one compare of a range looks at. */
    int RANGE_KEYS_MAX = 10_000;

    /** Version of a key that does not exist. */
    long ABSENT = 0;

    /** The key with its value, or nothing where there is none. */
    Optional<Entry> get(String key) throws IOException;

    /** A page of keys, in the order of their code points. */
    Page list(ListRequest request) throws IOException;

    /**
     * Commits a transaction. {@code witness} says how an outcome that no answer decides is read back: it must hold after
     * this transaction, and must not hold where the transaction did not happen.
     */
    TxnResult commit(Txn txn, Witness witness) throws IOException;

    /** Where the key-value space is, for texts of errors. */
    String describe();
}
