package io.raftlake.spark.connector;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * The names of all options: those with a meaning, those that are accepted without effect, and those that are refused. They are
 * the names of the Python connector ({@code pyspark_raftlake/option_names.py}); a test compares both.
 */
public final class OptionNames {
    public static final String SERVERS = "kafka.bootstrap.servers";
    public static final String SERVERS_SHORT = "bootstrap.servers";

    /** A variable of the driver's environment, read when neither option is given. */
    public static final String SERVERS_ENVIRONMENT = "RAFTLAKE_BOOTSTRAP_SERVERS";

    public static final String SUBSCRIBE = "subscribe";
    public static final String SUBSCRIBE_PATTERN = "subscribePattern";
    public static final String ASSIGN = "assign";
    public static final String STARTING_OFFSETS = "startingOffsets";
    public static final String ENDING_OFFSETS = "endingOffsets";
    public static final String STARTING_TIMESTAMP = "startingTimestamp";
    public static final String ENDING_TIMESTAMP = "endingTimestamp";
    public static final String STARTING_OFFSETS_BY_TIMESTAMP = "startingOffsetsByTimestamp";
    public static final String ENDING_OFFSETS_BY_TIMESTAMP = "endingOffsetsByTimestamp";
    public static final String TIMESTAMP_STRATEGY = "startingOffsetsByTimestampStrategy";
    public static final String MAX_OFFSETS = "maxOffsetsPerTrigger";
    public static final String MIN_OFFSETS = "minOffsetsPerTrigger";
    public static final String MAX_TRIGGER_DELAY = "maxTriggerDelay";
    public static final String MIN_PARTITIONS = "minPartitions";
    public static final String MAX_RECORDS_PER_PARTITION = "maxRecordsPerPartition";
    public static final String FAIL_ON_DATA_LOSS = "failOnDataLoss";
    public static final String INCLUDE_HEADERS = "includeHeaders";
    public static final String CONSISTENCY = "consistency";
    public static final String TIER = "tier";
    public static final String TIER_URI = "tier.uri";

    /** Options of the store of the tables, as delta-rs names them, follow this prefix. Their values are shown nowhere. */
    public static final String TIER_STORAGE_PREFIX = "tier.storage.";

    public static final String TOPIC = "topic";
    public static final String TXN_APP = "txnAppId";
    public static final String TXN_VERSION = "txnVersion";

    /** Which guarantee the sink gives in real-time mode. */
    public static final String REAL_TIME_DELIVERY = "realTimeDelivery";

    public static final String FETCH_RETRIES = "fetchOffset.numRetries";
    public static final String FETCH_RETRY_INTERVAL = "fetchOffset.retryIntervalMs";

    /** How often a stream writes down how far it is, in ms; 0 for never. */
    public static final String POSITION_INTERVAL = "positionIntervalMs";

    public static final String ISOLATION_LEVEL = "kafka.isolation.level";
    public static final String CLIENT_ID = "kafka.client.id";
    public static final String COMPRESSION = "kafka.compression.type";
    public static final String SECURITY_PROTOCOL = "kafka.security.protocol";
    public static final String API_TIMEOUT = "kafka.default.api.timeout.ms";
    public static final String REQUEST_TIMEOUT = "kafka.request.timeout.ms";
    public static final String DELIVERY_TIMEOUT = "kafka.delivery.timeout.ms";
    public static final String BLOCK_TIMEOUT = "kafka.max.block.ms";
    public static final String TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms";

    /** Of these exactly one is given. */
    public static final List<String> SELECTIONS = List.of(SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN);

    /** Of these one at most is given. */
    public static final List<String> STARTS = List.of(STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS);

    /** Of these one at most is given. */
    public static final List<String> ENDS = List.of(ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS);

    /** Options of the source that mean something. */
    public static final List<String> SOURCE = Stream.of(
            List.of(SERVERS, SERVERS_SHORT), SELECTIONS, STARTS, ENDS,
            List.of(TIMESTAMP_STRATEGY, MAX_OFFSETS, MIN_OFFSETS, MAX_TRIGGER_DELAY, MIN_PARTITIONS, MAX_RECORDS_PER_PARTITION,
                    FAIL_ON_DATA_LOSS, INCLUDE_HEADERS, CONSISTENCY, TIER, TIER_URI, FETCH_RETRIES, FETCH_RETRY_INTERVAL,
                    POSITION_INTERVAL))
            .flatMap(List::stream).toList();

    /** Options of the Kafka source that tune its consumer; there are no consumer groups here. */
    public static final List<String> SOURCE_WITHOUT_EFFECT = List.of("groupIdPrefix", "kafkaConsumer.pollTimeoutMs");

    /** Options of the sink that mean something. */
    public static final List<String> SINK = List.of(SERVERS, SERVERS_SHORT, TOPIC, TXN_APP, TXN_VERSION,
            REAL_TIME_DELIVERY);

    /** Headers are written whenever there is a headers column; Spark itself reads the others. */
    public static final List<String> SINK_WITHOUT_EFFECT = List.of(INCLUDE_HEADERS, "checkpointLocation", "queryName",
            "asyncProgressTrackingEnabled", "asyncProgressTrackingCheckpointIntervalMs",
            "asyncProgressTrackingOverrideSinkSupportCheck");

    /** Settings of Kafka's clients that mean something, or are looked at. */
    public static final List<String> CLIENT_SETTINGS = List.of(ISOLATION_LEVEL, CLIENT_ID, COMPRESSION, SECURITY_PROTOCOL,
            API_TIMEOUT, REQUEST_TIMEOUT, DELIVERY_TIMEOUT, BLOCK_TIMEOUT, TRANSACTION_TIMEOUT);

    /** Settings of Kafka's clients that are accepted and change nothing. */
    public static final List<String> CLIENT_SETTINGS_WITHOUT_EFFECT = Stream.of("acks", "allow.auto.create.topics",
            "batch.size", "buffer.memory", "check.crcs", "client.dns.lookup", "client.rack", "compression.gzip.level",
            "compression.lz4.level", "compression.zstd.level", "connections.max.idle.ms", "enable.idempotence",
            "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id",
            "group.instance.id", "heartbeat.interval.ms", "linger.ms", "max.in.flight.requests.per.connection",
            "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "max.request.size", "metadata.max.age.ms",
            "metadata.max.idle.ms", "metadata.recovery.strategy", "partition.assignment.strategy",
            "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "receive.buffer.bytes",
            "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
            "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms").map(name -> "kafka." + name).toList();

    private static final String BYTES = "keys and values are bytes here; convert them with DataFrame operations";

    /** Settings that would change what is read or promised, with the reason. */
    public static final Map<String, String> REFUSED = refused();

    /** Settings of these families ask for encryption or authentication. */
    public static final List<String> REFUSED_PREFIXES = List.of("kafka.ssl.", "kafka.sasl.");

    public static final String NO_SECURITY = "raftlake's listeners speak PLAINTEXT only";

    private OptionNames() {}

    private static Map<String, String> refused() {
        Map<String, String> reasons = new LinkedHashMap<>();
        reasons.put("kafka.auto.offset.reset", "set the source option '" + STARTING_OFFSETS + "' to 'earliest' or 'latest' "
                + "instead. It applies when a new query is started; a restarted one goes on where it left off");
        for (String name : List.of("key.deserializer", "value.deserializer", "key.serializer", "value.serializer")) {
            reasons.put("kafka." + name, BYTES);
        }
        reasons.put("kafka.enable.auto.commit", "Spark keeps the offsets in the checkpoint");
        reasons.put("kafka.interceptor.classes", "interceptors could change the data on its way");
        reasons.put("kafka.partitioner.class", "rows with a key go where Kafka's default partitioner puts them; set a "
                + "partition column instead");
        reasons.put("kafka.partitioner.ignore.keys", "set a partition column instead");
        reasons.put("kafka.transactional.id", "the sink names the transactions of its tasks itself");
        return Map.copyOf(reasons);
    }
}
