package io.raftlake.spark.quorum;

/**
 * Which keys are listed: those that begin with {@code prefix} and come behind {@code after}, at most {@code limit}.
 * With a {@code delimiter} of one character, only keys without that character behind the prefix; deeper names are given
 * once each as prefixes. {@code after} and {@code delimiter} may be null.
 */
public record ListRequest(String prefix, String delimiter, String after, int limit, boolean values) {
    /** Rows of one page that a node gives at most. */
    public static final int LIMIT_MAX = 10_000;

    /** All keys under {@code prefix}. */
    public static ListRequest deep(String prefix, boolean values) {
        return new ListRequest(prefix, null, null, LIMIT_MAX, values);
    }

    /** The keys directly below {@code prefix}, which ends in a slash. */
    public static ListRequest children(String prefix, boolean values) {
        return new ListRequest(prefix, "/", null, LIMIT_MAX, values);
    }

    public ListRequest after(String key) {
        return new ListRequest(prefix, delimiter, key, limit, values);
    }

    public ListRequest limit(int rows) {
        return new ListRequest(prefix, delimiter, after, rows, values);
    }
}
