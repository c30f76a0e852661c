package io.raftlake.spark.log;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Kafka's error codes, as far as nodes answer them to what this client asks, and what each means for the caller. */
enum Code {
    UNKNOWN_SERVER_ERROR(-1),
    NONE(0),
    OFFSET_OUT_OF_RANGE(1),
    CORRUPT_MESSAGE(2),
    UNKNOWN_TOPIC_OR_PARTITION(3),
    LEADER_NOT_AVAILABLE(5),
    NOT_LEADER_OR_FOLLOWER(6),
    REQUEST_TIMED_OUT(7),
    BROKER_NOT_AVAILABLE(8),
    REPLICA_NOT_AVAILABLE(9),
    MESSAGE_TOO_LARGE(10),
    NETWORK_EXCEPTION(13),
    COORDINATOR_LOAD_IN_PROGRESS(14),
    COORDINATOR_NOT_AVAILABLE(15),
    NOT_COORDINATOR(16),
    INVALID_TOPIC_EXCEPTION(17),
    RECORD_LIST_TOO_LARGE(18),
    NOT_ENOUGH_REPLICAS(19),
    NOT_ENOUGH_REPLICAS_AFTER_APPEND(20),
    TOPIC_AUTHORIZATION_FAILED(29),
    CLUSTER_AUTHORIZATION_FAILED(31),
    INVALID_TIMESTAMP(32),
    UNSUPPORTED_VERSION(35),
    TOPIC_ALREADY_EXISTS(36),
    INVALID_PARTITIONS(37),
    INVALID_REPLICATION_FACTOR(38),
    INVALID_CONFIG(40),
    NOT_CONTROLLER(41),
    INVALID_REQUEST(42),
    POLICY_VIOLATION(44),
    OUT_OF_ORDER_SEQUENCE_NUMBER(45),
    DUPLICATE_SEQUENCE_NUMBER(46),
    INVALID_PRODUCER_EPOCH(47),
    INVALID_TXN_STATE(48),
    INVALID_PRODUCER_ID_MAPPING(49),
    INVALID_TRANSACTION_TIMEOUT(50),
    CONCURRENT_TRANSACTIONS(51),
    KAFKA_STORAGE_ERROR(56),
    UNKNOWN_PRODUCER_ID(59),
    FENCED_LEADER_EPOCH(74),
    UNKNOWN_LEADER_EPOCH(75),
    UNSUPPORTED_COMPRESSION_TYPE(76),
    OFFSET_NOT_AVAILABLE(78),
    INVALID_RECORD(87),
    THROTTLING_QUOTA_EXCEEDED(89),
    PRODUCER_FENCED(90),
    UNKNOWN_TOPIC_ID(100),
    INCONSISTENT_CLUSTER_ID(104),
    TRANSACTIONAL_ID_NOT_FOUND(105),
    OFFSET_MOVED_TO_TIERED_STORAGE(109);

    private static final Map<Integer, Code> BY_NUMBER =
            Stream.of(values()).collect(Collectors.toMap(code -> code.number, Function.identity()));

    private static final Set<Code> PASSING = EnumSet.of(
            UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE,
            REPLICA_NOT_AVAILABLE, NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
            CONCURRENT_TRANSACTIONS, NOT_CONTROLLER,
            NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
            UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_TOPIC_ID);

    private static final Set<Code> NOT_APPENDED = EnumSet.of(
            UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, LEADER_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS, THROTTLING_QUOTA_EXCEEDED);

    private static final Set<Code> LOST_SEQUENCE = EnumSet.of(
            OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
            PRODUCER_FENCED);

    private final int number;

    Code(int number) {
        this.number = number;
    }

    /** A number that is none of these is an error of the server. */
    static Code of(int number) {
        return BY_NUMBER.getOrDefault(number, UNKNOWN_SERVER_ERROR);
    }

    int number() {
        return number;
    }

    /** Whether it passes by itself, or with another leader. */
    boolean passes() {
        return PASSING.contains(this);
    }

    /** Of an append that may be tried again: whether this try certainly left nothing in the log. */
    boolean leavesNothing() {
        return NOT_APPENDED.contains(this);
    }

    /** Of an append: the node does not know, or no longer takes, this producer id with this sequence. This try left nothing. */
    boolean losesSequence() {
        return LOST_SEQUENCE.contains(this);
    }
}
