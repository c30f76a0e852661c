package io.raftlake.spark.log;

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;

/** The settings of the log client, checked: an IllegalArgumentException names the setting, its value and what is accepted. */
public record LogSettings(List<InetSocketAddress> servers, long timeoutMs, Codec codec) {
    public static final String TIMEOUT = "raftlake.request.timeout.ms";
    public static final String CODEC = "raftlake.compression.type";

    public static final long TIMEOUT_MS_DEFAULT = 60_000;

    static final Codec CODEC_DEFAULT = Codec.LZ4;

    public static LogSettings of(Configuration conf) {
        List<InetSocketAddress> servers = Bootstrap.parse(conf.get(Bootstrap.SETTING));
        return new LogSettings(servers, timeoutMs(conf.getTrimmed(TIMEOUT)), codec(conf.getTrimmed(CODEC)));
    }

    private static long timeoutMs(String text) {
        if (text == null || text.matches("[0-9]{1,9}") && Integer.parseInt(text) > 0) {
            return text == null ? TIMEOUT_MS_DEFAULT : Integer.parseInt(text);
        }
        throw new IllegalArgumentException(TIMEOUT + "=" + text + ": accepted is a whole number from 1 to 999999999");
    }

    private static Codec codec(String text) {
        if (text == null || text.isEmpty()) {
            return CODEC_DEFAULT;
        }
        try {
            return Codec.named(text);
        } catch (IllegalArgumentException unknown) {
            String accepted = Arrays.toString(Codec.values()).toLowerCase(Locale.ROOT);
            throw new IllegalArgumentException(CODEC + "=" + text + ": accepted is one of " + accepted, unknown);
        }
    }
}
