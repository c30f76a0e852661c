package io.raftlake.spark.log;

/** The requests that this client sends: Kafka's keys, each in one version, all flexible. Every node of ours speaks these. */
enum Api {
    PRODUCE(0, 12),
    FETCH(1, 12),
    /** The same by ids of topics (KIP-516): another topic of the same name is refused. */
    FETCH_BY_ID(1, 13),
    LIST_OFFSETS(2, 7),
    METADATA(3, 12),
    FIND_COORDINATOR(10, 3),
    CREATE_TOPICS(19, 7),
    DELETE_TOPICS(20, 6),
    DELETE_RECORDS(21, 2),
    INIT_PRODUCER_ID(22, 4),
    ADD_PARTITIONS_TO_TXN(24, 3),
    DESCRIBE_CONFIGS(32, 4),
    CREATE_PARTITIONS(37, 3),
    DESCRIBE_TRANSACTIONS(65, 0),
    LIST_TRANSACTIONS(66, 0),
    /** Private to raftlake (KIP-650). */
    READ_OFFSET(10650, 0);

    private final short key;
    private final short version;

    Api(int key, int version) {
        this.key = (short) key;
        this.version = (short) version;
    }

    short key() {
        return key;
    }

    short version() {
        return version;
    }
}
