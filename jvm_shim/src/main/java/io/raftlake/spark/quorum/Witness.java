package io.raftlake.spark.quorum;

import java.io.IOException;
import java.util.Arrays;
import java.util.Optional;

/**
 * A question whose answer tells whether a transaction happened, asked where no node said so: a lost answer, a 504.
 *
 * <p>{@link #holds} is true only after an effect of the transaction. A value that no other writer puts (values of files
 * carry an id) makes the question exact. What another writer undid meanwhile cannot be seen any more.
 */
@FunctionalInterface
public interface Witness {
    boolean holds(KeySpace space) throws IOException;

    /** The transaction put this value. */
    static Witness put(String key, byte[] value) {
        return space -> space.get(key).map(Entry::value).filter(found -> Arrays.equals(found, value)).isPresent();
    }

    /**
     * The transaction removed the key that stood at {@code version}. Whoever removed the key, it is gone. Its value may stand
     * under another key: nothing that it points to may be removed on this word.
     */
    static Witness gone(String key, long version) {
        return space -> {
            Optional<Entry> found = space.get(key);
            return found.isEmpty() || found.get().version() != version;
        };
    }
}
