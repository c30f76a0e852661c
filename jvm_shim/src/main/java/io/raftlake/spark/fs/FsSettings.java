package io.raftlake.spark.fs;

import io.raftlake.spark.log.Bootstrap;
import io.raftlake.spark.log.LogSettings;
import io.raftlake.spark.quorum.Servers;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/**
 * The settings of the file system, checked: an IllegalArgumentException names the setting, its value and what is accepted.
 * {@code baseUri} and {@code logs} are null where nothing is set that says so.
 */
public record FsSettings(
        List<String> servers, long timeoutMs, int inlineBytes, String baseUri, long orphanAgeMs, long standbyBytes,
        LogSettings logs) {
    public static final String TIMEOUT = "raftlake.request.timeout.ms";
    public static final String INLINE_BYTES = "raftlake.fs.inline.bytes";
    public static final String ORPHAN_AGE = "raftlake.fs.orphan.age.ms";
    public static final String STANDBY_BYTES = "raftlake.state.standby.bytes";

    static final int INLINE_BYTES_DEFAULT = 64 * 1024;
    static final long TIMEOUT_MS_DEFAULT = 60_000;
    static final long ORPHAN_AGE_MS_DEFAULT = 24 * 3_600_000L;

    public static FsSettings of(Configuration conf) {
        String base = conf.getTrimmed(HadoopBlobStore.SETTING, "");
        return new FsSettings(
                Servers.parse(conf.get(Servers.SETTING)),
                number(conf, TIMEOUT, TIMEOUT_MS_DEFAULT, 1, Integer.MAX_VALUE),
                (int) number(conf, INLINE_BYTES, INLINE_BYTES_DEFAULT, 0, Node.INLINE_BYTES_MAX),
                base.isEmpty() ? null : base,
                number(conf, ORPHAN_AGE, ORPHAN_AGE_MS_DEFAULT, 0, Long.MAX_VALUE),
                number(conf, STANDBY_BYTES, 0, 0, Long.MAX_VALUE),
                conf.getTrimmed(Bootstrap.SETTING, "").isEmpty() ? null : LogSettings.of(conf));
    }

    private static long number(Configuration conf, String name, long byDefault, long low, long high) {
        String text = conf.getTrimmed(name, Long.toString(byDefault));
        try {
            long value = Long.parseLong(text);
            if (value >= low && value <= high) {
                return value;
            }
        } catch (NumberFormatException noNumber) {
            // Told below, as a number out of range is.
        }
        throw new IllegalArgumentException(
                name + "=" + text + ": accepted is a whole number from " + low + " to " + high);
    }
}
