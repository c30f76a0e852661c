package io.raftlake.spark.connector.table;

import java.util.Locale;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/** The settings of Hadoop's file systems for a store that options name in the words of delta-rs. */
public final class TableStore {
    private static final Map<String, String> S3 = Map.of(
            "access_key_id", "fs.s3a.access.key",
            "secret_access_key", "fs.s3a.secret.key",
            "session_token", "fs.s3a.session.token",
            "region", "fs.s3a.endpoint.region",
            "endpoint", "fs.s3a.endpoint",
            "endpoint_url", "fs.s3a.endpoint");

    private TableStore() {}

    /** A copy with these options. IllegalArgumentException for one that Hadoop has no setting for; values are not shown. */
    public static Configuration settings(Configuration session, Map<String, String> storage) {
        Configuration conf = new Configuration(session);
        for (Map.Entry<String, String> option : storage.entrySet()) {
            String name = option.getKey().toLowerCase(Locale.ROOT).replaceFirst("^aws_", "");
            if (name.equals("allow_http")) {
                conf.setBoolean("fs.s3a.connection.ssl.enabled", !Boolean.parseBoolean(option.getValue()));
            } else if (S3.containsKey(name)) {
                conf.set(S3.get(name), option.getValue());
            } else {
                throw new IllegalArgumentException("Option 'tier.storage." + option.getKey() + "' has no counterpart among the "
                        + "settings of Hadoop that the connector in Java reads tables with; set those of the store in Spark");
            }
        }
        if (!storage.isEmpty()) {
            conf.setBoolean("fs.s3a.impl.disable.cache", true);
            conf.setBoolean("fs.s3a.path.style.access", true);
        }
        return conf;
    }

    /** A place as Hadoop names it: its file system for S3 is {@code s3a}. */
    public static String place(String uri) {
        return uri.replaceFirst("^s3://", "s3a://");
    }
}
