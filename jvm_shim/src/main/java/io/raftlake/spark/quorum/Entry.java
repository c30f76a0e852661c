package io.raftlake.spark.quorum;

import java.util.Arrays;

/** A key as it stands: its value, null in lists without values, and the log offset of its last change. */
public record Entry(String key, long version, byte[] value) {
    @Override
    public boolean equals(Object other) {
        return other instanceof Entry that
                && key.equals(that.key)
                && version == that.version
                && Arrays.equals(value, that.value);
    }

    @Override
    public int hashCode() {
        return key.hashCode() * 31 + Long.hashCode(version);
    }

    @Override
    public String toString() {
        return key + "@" + version;
    }
}
