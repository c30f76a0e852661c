package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.List;
import java.util.function.Consumer;

/** The bodies of Produce and Fetch, of one partition each. */
final class RecordMessages {
    private static final int ALL_IN_SYNC = -1;
    private static final int CONSUMER = -1;
    private static final int READ_COMMITTED = 1;
    private static final int NO_EPOCH = -1;

    /** What a Fetch of one partition answered. {@code records} are whole batches, and perhaps a piece of one at the end. */
    record FetchAnswer(Code code, long highWatermark, long lastStableOffset, long logStart, List<Batches.Aborted> aborted,
            ByteBuffer records) {}

    private record ProduceAnswer(Code code, long offset, String told) {}

    private RecordMessages() {}

    /** {@code batch} is acknowledged by a majority within {@code timeoutMs}. */
    static Out produce(Partition at, byte[] batch, int timeoutMs) {
        return new Out()
                .text(null)
                .i16(ALL_IN_SYNC)
                .i32(timeoutMs)
                .array(List.of(at), (topic, same) -> topic.text(at.topic())
                        .array(List.of(at), (partition, one) -> partition.i32(at.partition()).bytes(batch)))
                .noTags();
    }

    /** The offset of the batch's first record. */
    static long produce(ByteBuffer answer) throws IOException, Refusal {
        ProduceAnswer told = In.answer(answer, "Produce", in -> {
            Messages.requireOne(in);
            in.text();
            Messages.requireOne(in);
            in.i32();
            Code code = in.code();
            long offset = in.i64();
            in.i64();
            in.i64();
            in.array(error -> error.i32() + ": " + error.text());
            return new ProduceAnswer(code, offset, in.text());
        });
        Refusal.unlessNone(told.code(), told.told());
        return told.offset();
    }

    static Out fetch(Partition at, long offset, int maxBytes, int maxWaitMs) {
        return fetch(topic -> topic.text(at.topic()), at.partition(), offset, maxBytes, maxWaitMs, READ_COMMITTED);
    }

    /** From the topic of this id, in base64, alone. With {@code committed} the answer names aborted transactions. */
    static Out fetchById(String topicId, int number, long offset, int maxBytes, int maxWaitMs, boolean committed) {
        byte[] id = Base64.getUrlDecoder().decode(topicId);
        int isolation = committed ? READ_COMMITTED : 0;
        return fetch(topic -> topic.raw(id, 0, id.length), number, offset, maxBytes, maxWaitMs, isolation);
    }

    /** {@code name} writes what the version of the request knows a topic by. */
    private static Out fetch(Consumer<Out> name, int number, long offset, int maxBytes, int maxWaitMs, int isolation) {
        return new Out()
                .i32(CONSUMER)
                .i32(maxWaitMs)
                .i32(1)
                .i32(maxBytes)
                .i8(isolation)
                .i32(0)
                .i32(-1)
                .array(List.of(name), (topic, named) -> {
                    named.accept(topic);
                    topic.array(List.of(number), (partition, one) -> partition.i32(one)
                            .i32(NO_EPOCH)
                            .i64(offset)
                            .i32(NO_EPOCH)
                            .i64(-1)
                            .i32(maxBytes));
                })
                .array(List.of(), (none, nothing) -> {})
                .text("")
                .noTags();
    }

    /** As {@link #fetch(ByteBuffer)}, of the one topic that was asked for by its id. */
    static FetchAnswer fetchById(ByteBuffer answer) throws IOException, Refusal {
        return fetch(answer, in -> in.slice(16));
    }

    /** An answer about the one partition. Its error is the caller's matter: one of offsets comes with the bounds of the log. */
    static FetchAnswer fetch(ByteBuffer answer) throws IOException, Refusal {
        return fetch(answer, In::text);
    }

    private static FetchAnswer fetch(ByteBuffer answer, In.Reading<?> topic) throws IOException, Refusal {
        Code[] top = new Code[1];
        FetchAnswer told = In.answer(answer, "Fetch", in -> {
            in.i32();
            top[0] = in.code();
            in.i32();
            if (top[0] != Code.NONE) {
                return null;
            }
            Messages.requireOne(in);
            topic.read(in);
            Messages.requireOne(in);
            in.i32();
            Code code = in.code();
            long highWatermark = in.i64();
            long lastStableOffset = in.i64();
            long logStart = in.i64();
            List<Batches.Aborted> aborted = in.array(each -> new Batches.Aborted(each.i64(), each.i64()));
            in.i32();
            ByteBuffer records = in.bytes();
            return new FetchAnswer(code, highWatermark, lastStableOffset, logStart, aborted,
                    records == null ? ByteBuffer.allocate(0) : records);
        });
        Refusal.unlessNone(top[0], null);
        if (told.code() != Code.NONE && told.code() != Code.OFFSET_OUT_OF_RANGE) {
            throw new Refusal(told.code(), null);
        }
        return told;
    }
}
