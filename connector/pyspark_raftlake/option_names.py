"""The vocabulary of options: what exists, what is accepted without effect, what is refused and why.

A job that moves from Spark's Kafka connector keeps its options. Client settings that tune a Kafka client (sizes, waits,
retries) are accepted and change nothing: raftlake's client has its own ways. Settings that would change what is read or
promised are refused, with the reason, because ignoring them would be a lie.
"""

from __future__ import annotations

SERVERS = "kafka.bootstrap.servers"
SERVERS_SHORT = "bootstrap.servers"
#: Read on the driver when neither option is given; `configure` sets it.
SERVERS_ENVIRONMENT = "RAFTLAKE_BOOTSTRAP_SERVERS"

#: Spark's setting that lets filters reach sources written in Python; `configure` sets it.
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"

#: What Spark's streams tell their tasks: StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY, the run as job group.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
#: What `foreach_batch` tells the tasks of its function: the run, also where the function chooses another job group.
FOREACH_RUN = "raftlake.foreachBatch.run"
#: The name of the query stands in front of its id there, where it has one.
DESCRIPTION = "spark.job.description"

SUBSCRIBE = "subscribe"
SUBSCRIBE_PATTERN = "subscribePattern"
ASSIGN = "assign"
STARTING_OFFSETS = "startingOffsets"
ENDING_OFFSETS = "endingOffsets"
STARTING_TIMESTAMP = "startingTimestamp"
ENDING_TIMESTAMP = "endingTimestamp"
STARTING_OFFSETS_BY_TIMESTAMP = "startingOffsetsByTimestamp"
ENDING_OFFSETS_BY_TIMESTAMP = "endingOffsetsByTimestamp"
TIMESTAMP_STRATEGY = "startingOffsetsByTimestampStrategy"
MAX_OFFSETS = "maxOffsetsPerTrigger"
MIN_OFFSETS = "minOffsetsPerTrigger"
MAX_TRIGGER_DELAY = "maxTriggerDelay"
MIN_PARTITIONS = "minPartitions"
MAX_RECORDS_PER_PARTITION = "maxRecordsPerPartition"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
INCLUDE_HEADERS = "includeHeaders"
CONSISTENCY = "consistency"
TIER = "tier"
TIER_URI = "tier.uri"
#: Options of the store of the tables, as delta-rs names them, follow this prefix. Their values are shown nowhere.
TIER_STORAGE_PREFIX = "tier.storage."
TOPIC = "topic"
#: As Delta names them: a batch write of an app with a version that was written before does nothing.
TXN_APP = "txnAppId"
TXN_VERSION = "txnVersion"
#: Which guarantee the sink in Java gives in real-time mode, which Spark refuses for the one in Python.
REAL_TIME_DELIVERY = "realTimeDelivery"
REAL_TIME_DELIVERIES = ("exactly-once", "at-least-once")
#: How often a question of the driver is asked again in an outage, and the pause before it.
FETCH_RETRIES = "fetchOffset.numRetries"
FETCH_RETRY_INTERVAL = "fetchOffset.retryIntervalMs"

#: How often a stream writes down how far it is, in ms; 0 for never.
POSITION_INTERVAL = "positionIntervalMs"

SELECTIONS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
STARTS = (STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS)
ENDS = (ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS)

#: Options of the source that mean something here.
SOURCE_OPTIONS = (
    SERVERS,
    SERVERS_SHORT,
    *SELECTIONS,
    *STARTS,
    *ENDS,
    TIMESTAMP_STRATEGY,
    MAX_OFFSETS,
    MIN_OFFSETS,
    MAX_TRIGGER_DELAY,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    CONSISTENCY,
    TIER,
    TIER_URI,
    FETCH_RETRIES,
    FETCH_RETRY_INTERVAL,
    POSITION_INTERVAL,
)
#: Options of the Kafka source that tune its consumer; there are no consumer groups here.
SOURCE_OPTIONS_WITHOUT_EFFECT = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)
#: Options of the sink that mean something here.
SINK_OPTIONS = (SERVERS, SERVERS_SHORT, TOPIC, TXN_APP, TXN_VERSION, REAL_TIME_DELIVERY)
#: `includeHeaders`: the sink writes headers whenever there is a headers column, as Kafka's does. The others are read by
#: Spark itself, which hands every option of a streaming writer to its sink.
SINK_OPTIONS_WITHOUT_EFFECT = (
    INCLUDE_HEADERS,
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "asyncProgressTrackingOverrideSinkSupportCheck",
)

#: Settings of Kafka's clients that mean something here.
ISOLATION_LEVEL = "kafka.isolation.level"
CLIENT_ID = "kafka.client.id"
COMPRESSION = "kafka.compression.type"
SECURITY_PROTOCOL = "kafka.security.protocol"
#: How long an outage is waited for, and how long one request.
API_TIMEOUT = "kafka.default.api.timeout.ms"
REQUEST_TIMEOUT = "kafka.request.timeout.ms"
DELIVERY_TIMEOUT = "kafka.delivery.timeout.ms"
BLOCK_TIMEOUT = "kafka.max.block.ms"
TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
CLIENT_SETTINGS = (
    ISOLATION_LEVEL,
    CLIENT_ID,
    COMPRESSION,
    SECURITY_PROTOCOL,
    API_TIMEOUT,
    REQUEST_TIMEOUT,
    DELIVERY_TIMEOUT,
    BLOCK_TIMEOUT,
    TRANSACTION_TIMEOUT,
)

#: Settings of Kafka's clients that are accepted and change nothing. `acks` and `enable.idempotence` are among them because
#: here every append is acknowledged by a majority and every producer is idempotent, whatever they say.
CLIENT_SETTINGS_WITHOUT_EFFECT = tuple(
    f"kafka.{name}"
    for name in (
        "acks",
        "allow.auto.create.topics",
        "batch.size",
        "buffer.memory",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "enable.idempotence",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.strategy",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)

_BYTES = "keys and values are bytes here; convert them with DataFrame operations"
#: Settings that would change what is read or promised.
REFUSED_CLIENT_SETTINGS = {
    "kafka.auto.offset.reset": (
        f"set the source option '{STARTING_OFFSETS}' to 'earliest' or 'latest' instead. It applies when a new query is "
        "started; a restarted one goes on where it left off"
    ),
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.key.serializer": _BYTES,
    "kafka.value.serializer": _BYTES,
    "kafka.enable.auto.commit": "Spark keeps the offsets in the checkpoint",
    "kafka.interceptor.classes": "interceptors could change the data on its way",
    "kafka.partitioner.class": "rows with a key go where Kafka's default partitioner puts them; set a partition column instead",
    "kafka.partitioner.ignore.keys": "set a partition column instead",
    "kafka.transactional.id": "the sink names the transactions of its tasks itself",
}
#: Settings of these families ask for encryption or authentication.
REFUSED_PREFIXES = ("kafka.ssl.", "kafka.sasl.")
NO_SECURITY = "raftlake's listeners speak PLAINTEXT only"
