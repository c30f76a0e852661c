package io.raftlake.spark.quorum;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;

/** The order of keys, and their length. */
public final class Keys {
    /** By code points, as nodes order keys. {@code String.compareTo} puts surrogate pairs elsewhere. */
    public static final Comparator<String> ORDER =
            (left, right) -> Arrays.compareUnsigned(utf8(left), utf8(right));

    private Keys() {}

    public static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
