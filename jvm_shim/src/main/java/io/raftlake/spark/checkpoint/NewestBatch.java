package io.raftlake.spark.checkpoint;

/**
 * The largest batch number that stands as a file's name in one log of a checkpoint, as the driver that owns it knows: it listed
 * the log, and nobody else may write there since.
 *
 * <p>It serves the question whether a file with a larger number stands there, with one answer, no. That answer may be wrong
 * where another run took the checkpoint, or where a user put the file by hand. Whoever then creates the file is refused: the
 * transaction compares that no such file stands there, and the owner. That a file is there is never concluded from this.
 */
final class NewestBatch {
    private static final long NONE = -1;

    /** Behind the number of a batch whose file holds those of the batches before it too. */
    private static final String COMPACT = ".compact";

    private long newest = NONE;
    private boolean isListed;

    /** The directory was listed by its owner: it has these names, and those that {@link #created} told of meanwhile. */
    synchronized void listed(Iterable<String> names) {
        names.forEach(this::created);
        isListed = true;
    }

    /** A file of this name is there, or is about to be created. */
    synchronized void created(String name) {
        newest = Math.max(newest, number(name));
    }

    /** Whether no file of this name is there; false where that has to be asked. */
    synchronized boolean isAbsent(String name) {
        return isListed && number(name) > newest;
    }

    /** Whether a newer batch is there: then Spark never writes this one again. False for other names. */
    synchronized boolean isOld(String name) {
        return isBatch(name) && number(name) < newest;
    }

    /** Of a batch, as Spark writes it, compacted or not; {@link #NONE} for other names. */
    private static long number(String name) {
        String batch = name.endsWith(COMPACT) ? name.substring(0, name.length() - COMPACT.length()) : name;
        return isBatch(batch) ? Long.parseLong(batch) : NONE;
    }

    /** Whether it is the number of a batch, as Spark writes it. */
    static boolean isBatch(String name) {
        return name.matches("0|[1-9][0-9]{0,17}");
    }
}
