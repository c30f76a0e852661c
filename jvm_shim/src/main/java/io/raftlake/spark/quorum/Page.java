package io.raftlake.spark.quorum;

import java.util.List;

/**
 * A page of keys, and of prefixes where a delimiter was given; {@code more} where the list goes on behind {@link #last}.
 * {@code version} is the newest one that the page reflects: what changed later is not on it.
 */
public record Page(List<Entry> entries, List<String> prefixes, boolean more, long version) {
    /** The last name of the page, of either kind: {@code after} of the next one. Null for an empty page. */
    public String last() {
        String entry = entries.isEmpty() ? null : entries.get(entries.size() - 1).key();
        String prefix = prefixes.isEmpty() ? null : prefixes.get(prefixes.size() - 1);
        if (entry == null || prefix == null) {
            return entry == null ? prefix : entry;
        }
        return Keys.ORDER.compare(entry, prefix) < 0 ? prefix : entry;
    }
}
