package io.raftlake.spark.quorum;

import java.util.ArrayList;
import java.util.List;

/** The nodes' HTTP addresses, as the setting {@value #SETTING} lists them. */
public final class Servers {
    public static final String SETTING = "raftlake.http.servers";

    private Servers() {}

    /**
     * Addresses as {@code http://host:port}. {@code text} is {@code "host:port,host:port"}; a scheme in front is kept.
     * Throws IllegalArgumentException, whose text names the setting, for a list that is missing or no list.
     */
    public static List<String> parse(String text) {
        if (text == null || text.isBlank()) {
            throw new IllegalArgumentException(SETTING + " is not set (spark.hadoop." + SETTING + " in Spark). Set it to the "
                    + "nodes' http.listener addresses, \"host:port,host:port\"; pyspark_raftlake.configure(builder, quorum) "
                    + "and `raftlake spark-conf` set it");
        }
        List<String> fronts = new ArrayList<>();
        for (String part : text.split(",", -1)) {
            fronts.add(front(part.strip(), text));
        }
        return List.copyOf(fronts);
    }

    private static String front(String part, String text) {
        String scheme = part.startsWith("https://") ? "https://" : "http://";
        String address = part.startsWith(scheme) ? part.substring(scheme.length()) : part;
        int colon = address.lastIndexOf(':');
        if (colon < 1 || !address.substring(0, colon).matches("[A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]")
                || !address.substring(colon + 1).matches("[0-9]{1,5}")) {
            throw new IllegalArgumentException(
                    SETTING + "=" + text + ": '" + part + "' is no address; accepted is host:port,host:port");
        }
        return scheme + address;
    }
}
