package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/** The bodies of requests and answers about transactions (KIP-98, KIP-664, KIP-890), and of Produce within one. */
final class TransactionMessages {
    private static final int OF_TRANSACTIONS = 1;
    private static final int ALL_IN_SYNC = -1;

    /** The state of a transaction that nobody has ended. */
    static final String ONGOING = "Ongoing";

    /** What decided transactions are called until all partitions know of the decision. */
    static final String DECIDED = "Prepare";

    /** Where the coordinator is. */
    record Place(String host, int port) {}

    /** A transactional id, as the coordinator describes it. {@code partitions}: of a decided one those without their marker. */
    record Described(Code code, String transactionalId, String state, long producerId, short epoch, int partitions) {
        /** Whether it is decided, and some partition does not show that yet. */
        boolean isUnsettled() {
            return state.startsWith(DECIDED) && partitions > 0;
        }
    }

    private TransactionMessages() {}

    static Out findCoordinator() {
        return new Out().text("any").i8(OF_TRANSACTIONS).noTags();
    }

    static Place findCoordinator(ByteBuffer answer) throws IOException, Refusal {
        Code[] code = new Code[1];
        String[] told = new String[1];
        Place place = In.answer(answer, "FindCoordinator", in -> {
            in.i32();
            code[0] = in.code();
            told[0] = in.text();
            in.i32();
            return new Place(in.text(), in.i32());
        });
        Refusal.unlessNone(code[0], told[0]);
        return place;
    }

    /** The answer is read by {@link Messages#initProducerId(ByteBuffer)}. */
    static Out initProducerId(String transactionalId, long transactionMs) {
        return new Out().text(transactionalId).i32((int) transactionMs).i64(-1).i16(-1).noTags();
    }

    static Out addPartitions(String transactionalId, ProducerId producer, List<Partition> partitions) {
        Out out = new Out().text(transactionalId).i64(producer.id()).i16(producer.epoch());
        return out.array(partitions, (topic, at) -> topic.text(at.topic()).uvarint(2).i32(at.partition())).noTags();
    }

    /** The first refusal of a partition. */
    static Void addPartitions(ByteBuffer answer) throws IOException, Refusal {
        List<Code> codes = new ArrayList<>();
        In.answer(answer, "AddPartitionsToTxn", in -> {
            in.i32();
            return in.array(topic -> {
                topic.text();
                return topic.array(at -> {
                    at.i32();
                    return codes.add(at.code());
                });
            });
        });
        for (Code code : codes) {
            Refusal.unlessNone(code, null);
        }
        return null;
    }

    static Out list() {
        return new Out().texts(List.of(ONGOING)).texts(List.of()).noTags();
    }

    /** Transactional ids. */
    static List<String> list(ByteBuffer answer) throws IOException, Refusal {
        Code[] code = new Code[1];
        List<String> found = In.answer(answer, "ListTransactions", in -> {
            in.i32();
            code[0] = in.code();
            in.texts();
            return in.array(row -> {
                String transactionalId = row.text();
                row.i64();
                row.text();
                return transactionalId;
            });
        });
        Refusal.unlessNone(code[0], null);
        return found;
    }

    static Out describe(Collection<String> transactionalIds) {
        return new Out().texts(transactionalIds).noTags();
    }

    /** Those that exist. */
    static List<Described> describe(ByteBuffer answer) throws IOException, Refusal {
        List<Described> rows = In.answer(answer, "DescribeTransactions", in -> {
            in.i32();
            return in.array(TransactionMessages::described);
        });
        List<Described> found = new ArrayList<>();
        for (Described row : rows) {
            if (row.code() == Code.NONE) {
                found.add(row);
            } else if (row.code() != Code.TRANSACTIONAL_ID_NOT_FOUND) {
                throw new Refusal(row.code(), row.transactionalId());
            }
        }
        return found;
    }

    private static Described described(In row) {
        Code code = row.code();
        String transactionalId = row.text();
        String state = row.text();
        row.i32();
        row.i64();
        long producerId = row.i64();
        short epoch = row.i16();
        int partitions = row.array(topic -> {
            topic.text();
            return topic.numbers().size();
        }).stream().mapToInt(Integer::intValue).sum();
        return new Described(code, transactionalId, state, producerId, epoch, partitions);
    }

    /**
     * The buffers of a Produce request of one batch, behind its head. The batch is not copied. From version 12 on the leader adds
     * the partition to the transaction (KIP-890).
     */
    static ByteBuffer[] produce(String transactionalId, Partition at, byte[] batch, int timeoutMs) {
        Out before = new Out().text(transactionalId).i16(ALL_IN_SYNC).i32(timeoutMs);
        before.uvarint(2).text(at.topic()).uvarint(2).i32(at.partition()).uvarint(batch.length + 1);
        Out behind = new Out().noTags().noTags().noTags();
        return new ByteBuffer[] {before.buffer(), ByteBuffer.wrap(batch), behind.buffer()};
    }
}
