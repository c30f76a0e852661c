package io.raftlake.spark.connector;

import java.util.Collection;
import java.util.Comparator;
import java.util.List;

/** Names that look like a misspelt one, by the measure of Ratcliff and Obershelp: the share of characters in common runs. */
final class CloseNames {
    /** Names with less in common are other words. */
    private static final double RATIO_MIN = 0.6;

    private CloseNames() {}

    private record Rated(String name, double ratio) {}

    /** At most {@code count} of these names, the closest one first; of those as close the last one by name, as in Python. */
    static List<String> of(String name, Collection<String> names, int count) {
        return names.stream()
                .map(each -> new Rated(each, ratio(each, name)))
                .filter(each -> each.ratio() >= RATIO_MIN)
                .sorted(Comparator.comparingDouble(Rated::ratio).thenComparing(Rated::name).reversed())
                .limit(count)
                .map(Rated::name)
                .toList();
    }

    private static double ratio(String one, String other) {
        int length = one.length() + other.length();
        return length == 0 ? 1 : 2.0 * common(one, other) / length;
    }

    /** The length of the longest common run, and of those on both sides of it. */
    private static int common(String one, String other) {
        int size = 0;
        int at = 0;
        int otherAt = 0;
        for (int i = 0; i < one.length(); i++) {
            for (int j = 0; j < other.length(); j++) {
                int run = 0;
                while (i + run < one.length() && j + run < other.length() && one.charAt(i + run) == other.charAt(j + run)) {
                    run++;
                }
                if (run > size) {
                    size = run;
                    at = i;
                    otherAt = j;
                }
            }
        }
        if (size == 0) {
            return 0;
        }
        return size + common(one.substring(0, at), other.substring(0, otherAt))
                + common(one.substring(at + size), other.substring(otherAt + size));
    }
}
