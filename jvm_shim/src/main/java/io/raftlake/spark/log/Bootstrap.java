package io.raftlake.spark.log;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The nodes' Kafka addresses, as the setting {@value #SETTING} lists them. */
public final class Bootstrap {
    public static final String SETTING = "raftlake.bootstrap.servers";

    private static final Pattern ADDRESS = Pattern.compile("([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]):([0-9]{1,5})");
    private static final int PORT_MAX = 65535;

    private Bootstrap() {}

    /**
     * The addresses of {@code "host:port,host:port"}, not looked up yet. IllegalArgumentException, whose text names the
     * setting, for a list that is missing or no list.
     */
    public static List<InetSocketAddress> parse(String text) {
        if (text == null || text.isBlank()) {
            throw new IllegalArgumentException(SETTING + " is not set (spark.hadoop." + SETTING + " in Spark). Set it to the "
                    + "nodes' listeners, \"host:port,host:port\"; pyspark_raftlake.configure(builder, quorum) and "
                    + "`raftlake spark-conf` set it");
        }
        List<InetSocketAddress> servers = new ArrayList<>();
        for (String part : text.split(",", -1)) {
            Matcher address = ADDRESS.matcher(part.strip());
            if (!address.matches() || Integer.parseInt(address.group(2)) > PORT_MAX) {
                throw new IllegalArgumentException(
                        SETTING + "=" + text + ": '" + part.strip() + "' is no address; accepted is host:port,host:port");
            }
            String host = address.group(1).replaceAll("[\\[\\]]", "");
            servers.add(InetSocketAddress.createUnresolved(host, Integer.parseInt(address.group(2))));
        }
        return List.copyOf(servers);
    }
}
