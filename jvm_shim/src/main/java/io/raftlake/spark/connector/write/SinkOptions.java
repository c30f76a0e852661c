package io.raftlake.spark.connector.write;

import io.raftlake.spark.connector.Errors;
import io.raftlake.spark.connector.OptionNames;
import io.raftlake.spark.connector.Quorum;
import io.raftlake.spark.connector.RawOptions;
import io.raftlake.spark.log.Codec;
import io.raftlake.spark.log.Transactions;
import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * The options of a write, parsed on the driver. It crosses to the executors.
 *
 * @param topic takes precedence over a topic column; null: every row names its topic
 * @param deliveryMs a batch of records is sent again for so long, from its append on
 * @param app of a batch write that is to happen once: for whom it is; else null
 * @param appVersion its number, which only rises; -1 without an app
 * @param transactionMs how long the rows of a task may wait for the commit of their batch
 * @param realTime which guarantee real-time mode is to give ({@link RealTime}); null: the better one that there is
 */
record SinkOptions(Quorum quorum, String topic, Codec codec, long deliveryMs, String app, long appVersion, long transactionMs,
        String realTime) implements Serializable {
    /** An outage of two minutes, and time for the nodes to start and to elect. */
    private static final long OUTAGE_MS_MAX = 150_000;

    /** The longest that nodes allow by default (transaction.max.timeout.ms). */
    private static final long TRANSACTION_MS_MAX = 900_000;

    private static final List<String> CODECS =
            Arrays.stream(Codec.values()).map(codec -> codec.name().toLowerCase(Locale.ROOT)).toList();

    /** IllegalArgumentException, naming the option. */
    static SinkOptions of(Map<String, String> raw) {
        RawOptions options = new RawOptions(raw, OptionNames.SINK, OptionNames.SINK_WITHOUT_EFFECT, null);
        String topic = options.get(OptionNames.TOPIC);
        if ("".equals(topic)) {
            throw Errors.wrongValue(OptionNames.TOPIC, topic, "the name of a topic");
        }
        String app = options.get(OptionNames.TXN_APP);
        if ((app == null) != (options.get(OptionNames.TXN_VERSION) == null) || "".equals(app)) {
            throw new IllegalArgumentException("Options '" + OptionNames.TXN_APP + "' and '" + OptionNames.TXN_VERSION
                    + "' go together: who writes, and a rising number");
        }
        Quorum.Patience patience = new Quorum.Patience(options.positive(OptionNames.BLOCK_TIMEOUT, OUTAGE_MS_MAX), 0, 0,
                options.positive(OptionNames.REQUEST_TIMEOUT, 0), OptionNames.BLOCK_TIMEOUT);
        return new SinkOptions(Quorum.of(options, patience), topic,
                Codec.named(options.choice(OptionNames.COMPRESSION, CODECS, "none")),
                options.positive(OptionNames.DELIVERY_TIMEOUT, OUTAGE_MS_MAX), app,
                options.count(OptionNames.TXN_VERSION, -1),
                options.positive(OptionNames.TRANSACTION_TIMEOUT, TRANSACTION_MS_MAX),
                options.choice(OptionNames.REAL_TIME_DELIVERY, List.of(RealTime.EXACTLY_ONCE, RealTime.AT_LEAST_ONCE), null));
    }

    /** How long the producer of a task is patient. */
    Transactions.Patience patience() {
        return new Transactions.Patience(transactionMs, quorum.patience().askMs(), deliveryMs, quorum.patience().requestMs());
    }
}
