package io.raftlake.spark.connector;

import java.io.Serializable;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * Where the records of a topic with a remote tier are read.
 *
 * @param uri where the tables of the topics are; null: where the nodes say
 * @param storage options of their store; among them are credentials
 */
public record TierOptions(Mode mode, String uri, TreeMap<String, String> storage) implements Serializable {
    /** The values of the option {@code tier}. */
    public enum Mode {
        /** History from the Delta table, and the log from where that ends: one offset space. */
        AUTO,
        /** Only what the nodes have on local disks. */
        LOCAL,
        /** Only the Delta table: it ends where the table ends. */
        REMOTE
    }

    /** A password in a URI with the user before it. */
    private static final Pattern PASSWORD = Pattern.compile("(?<=://)[^\\s/@]*:[^\\s/@]*@");

    /** What comes behind the path of a URI, which may be a signature. */
    private static final Pattern QUERY = Pattern.compile("(://[^\\s?#]*)[?#].*$");

    /** IllegalArgumentException for options that cannot be used; it shows no secrets. */
    static TierOptions of(RawOptions options) {
        String uri = options.get(OptionNames.TIER_URI);
        if (uri != null && uri.isEmpty()) {
            throw Errors.wrongValue(OptionNames.TIER_URI, uri, "where the tables of the topics are, as tier.uri of the nodes");
        }
        String shown = uri == null ? null : QUERY.matcher(PASSWORD.matcher(uri).replaceAll("")).replaceAll("$1");
        if (uri != null && !shown.equals(uri)) {
            throw Errors.wrongValue(OptionNames.TIER_URI, shown,
                    "a place without password and query; tier.storage.<option> takes them");
        }
        String mode = options.choice(OptionNames.TIER, List.of("auto", "local", "remote"), "auto");
        Map<String, String> storage = options.behind(OptionNames.TIER_STORAGE_PREFIX);
        return new TierOptions(Mode.valueOf(mode.toUpperCase(Locale.ROOT)), uri, new TreeMap<>(storage));
    }

    /** The user asked for tables: one that cannot be read is an error, and no reason to ask the nodes. */
    public boolean isStrict() {
        return mode == Mode.REMOTE || uri != null;
    }

    /** Without values of the store's options. */
    @Override
    public String toString() {
        return "TierOptions[" + mode + ", " + uri + "]";
    }
}
