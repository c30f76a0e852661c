package io.raftlake.spark.connector;

import io.raftlake.spark.log.Bootstrap;
import java.io.Serializable;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;

/**
 * Where the nodes are, and how long an outage of them is waited for. It crosses to the executors.
 *
 * @param servers the listeners of the nodes, "host:port,host:port"
 */
public record Quorum(String servers, String clientId, Patience patience) implements Serializable {
    private static final String CLIENT_ID_DEFAULT = "spark-raftlake";

    /**
     * How long an outage is waited for.
     *
     * @param askMs how long one question is asked
     * @param retriesMax how often a question that was not answered is asked once more
     * @param intervalMs the pause between two of them
     * @param requestMs one request on one connection; 0: as the client thinks right
     * @param setting the option that makes a wait that was too short longer
     */
    public record Patience(long askMs, long retriesMax, long intervalMs, long requestMs, String setting) implements Serializable {
        /** As Kafka's default.api.timeout.ms. */
        public static final long ASK_MS_DEFAULT = 60_000;

        private static final long RETRIES_DEFAULT = 3;
        private static final long INTERVAL_MS_DEFAULT = 1_000;

        /** Of a source. */
        static Patience ofSource(RawOptions options) {
            return new Patience(options.positive(OptionNames.API_TIMEOUT, ASK_MS_DEFAULT),
                    options.count(OptionNames.FETCH_RETRIES, RETRIES_DEFAULT),
                    options.count(OptionNames.FETCH_RETRY_INTERVAL, INTERVAL_MS_DEFAULT),
                    options.positive(OptionNames.REQUEST_TIMEOUT, 0), OptionNames.FETCH_RETRIES);
        }

        /** All that a question may take, in ms. */
        public long totalMs() {
            return askMs * (retriesMax + 1) + intervalMs * retriesMax;
        }
    }

    /**
     * As the options name it, else the session ({@value Bootstrap#SETTING} of Hadoop's settings), else the environment of the
     * driver. IllegalArgumentException where none does.
     */
    public static Quorum of(RawOptions options, Patience patience) {
        List<String> given = options.given(List.of(OptionNames.SERVERS, OptionNames.SERVERS_SHORT));
        Set<String> values = new LinkedHashSet<>();
        given.forEach(name -> values.add(options.get(name)));
        if (values.isEmpty()) {
            values.add(ofSession().or(() -> Optional.ofNullable(System.getenv(OptionNames.SERVERS_ENVIRONMENT))).orElse(""));
        }
        if (values.size() > 1) {
            throw Errors.exclusiveOptions(given);
        }
        String servers = values.iterator().next();
        if (servers.isEmpty()) {
            throw Errors.missingServers();
        }
        Bootstrap.parse(servers);
        String clientId = options.get(OptionNames.CLIENT_ID);
        return new Quorum(servers, clientId == null || clientId.isEmpty() ? CLIENT_ID_DEFAULT : clientId, patience);
    }

    /** What {@code configure} and {@code attach} have set for the session. */
    private static Optional<String> ofSession() {
        Option<SparkSession> session = SparkSession.getActiveSession();
        if (session.isEmpty()) {
            session = SparkSession.getDefaultSession();
        }
        if (session.isEmpty()) {
            return Optional.empty();
        }
        String servers = session.get().sessionState().newHadoopConf().get(Bootstrap.SETTING);
        return Optional.ofNullable(servers).filter(named -> !named.isBlank());
    }
}
