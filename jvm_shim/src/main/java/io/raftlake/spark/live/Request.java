package io.raftlake.spark.live;

import io.raftlake.spark.RaftlakeFileSystem;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions;
import org.apache.spark.sql.execution.datasources.v2.state.StateSourceOptions$;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One look at a state: the options, and the batch whose end it sees.
 *
 * @param pinned the options with {@code batchId}
 * @param location the checkpoint
 * @param batch the number of the batch
 * @param conf the settings of the session for file systems
 */
public record Request(CaseInsensitiveStringMap pinned, String location, long batch, Configuration conf) {
    /** What users name. */
    public static final String FORMAT = "raftlake-state";

    private static final List<String> TAKEN = List.of("path", "batchid", "operatorid", "storename", "joinside", "statevarname",
            "readregisteredtimers", "flattencollectiontypes");

    /**
     * Looks which batch is the newest now, unless {@code batchId} names one. IllegalArgumentException for an option that the
     * format does not have, for a path that is not at {@code raftlake://}, and for what is not there.
     */
    public static Request of(CaseInsensitiveStringMap options) {
        for (String name : options.keySet()) {
            if (!TAKEN.contains(name.toLowerCase(Locale.ROOT))) {
                throw new IllegalArgumentException("format " + FORMAT + " has no option '" + name + "', only "
                        + String.join(", ", TAKEN) + "; snapshots and changes are read by format statestore");
            }
        }
        SparkSession session = SparkSession.active();
        Configuration conf =
                ((org.apache.spark.sql.classic.SparkSession) session).sessionState().newHadoopConf();
        requireScheme(options.get("path"), conf);
        StateSourceOptions asked =
                Missing.explaining(options, conf, () -> StateSourceOptions$.MODULE$.apply(session, conf, options));
        Map<String, String> pinned = new HashMap<>(options.asCaseSensitiveMap());
        pinned.keySet().removeIf(StateSourceOptions.BATCH_ID()::equalsIgnoreCase);
        pinned.put(StateSourceOptions.BATCH_ID(), Long.toString(asked.batchId()));
        return new Request(new CaseInsensitiveStringMap(pinned), asked.resolvedCpLocation(), asked.batchId(), conf);
    }

    /** What Spark's source says of the request. IllegalArgumentException where something that it names is not there. */
    public <T> T asking(Function<CaseInsensitiveStringMap, T> spark) {
        return Missing.explaining(pinned, conf, () -> spark.apply(pinned));
    }

    private static void requireScheme(String path, Configuration conf) {
        if (path == null) {
            // Spark's own message says that the option is missing.
            return;
        }
        String given = new Path(path).toUri().getScheme();
        if (!RaftlakeFileSystem.SCHEME.equals(given == null ? FileSystem.getDefaultUri(conf).getScheme() : given)) {
            throw new IllegalArgumentException("format " + FORMAT + " reads checkpoints at " + RaftlakeFileSystem.SCHEME
                    + "://, and '" + path + "' is none; format statestore reads the others");
        }
    }
}
