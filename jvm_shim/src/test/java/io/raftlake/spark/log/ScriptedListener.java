package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;

/**
 * A node's Kafka listener on loopback, with one partition, t-0, that it leads. Batches of producer ids are appended once, as a
 * node does. A script says what happens to the next requests of a kind, in order; without a script they are served.
 */
public final class ScriptedListener implements AutoCloseable {
    /** What becomes of a request: whether it takes effect, and what the client hears. */
    public record Step(boolean hasEffect, What what, Code code) {
        public enum What {
            SERVED,
            CODE,
            CLOSED,
            SILENCE,
            OTHER_CORRELATION,
            GARBAGE
        }

        static Step served() {
            return new Step(true, What.SERVED, Code.NONE);
        }

        /** A read without a record, as of a node that still has to read it from the remote tier. */
        static Step withoutRecords() {
            return new Step(false, What.SERVED, Code.NONE);
        }

        static Step lostBefore() {
            return new Step(false, What.CLOSED, Code.NONE);
        }

        static Step lostAfter() {
            return new Step(true, What.CLOSED, Code.NONE);
        }

        static Step refused(Code code) {
            return new Step(false, What.CODE, code);
        }

        /** Done, and told as an error. */
        static Step doubted(Code code) {
            return new Step(true, What.CODE, code);
        }

        static Step of(What what) {
            return new Step(true, what, Code.NONE);
        }
    }

    /** A batch that a producer id wrote. */
    private record Last(int sequence, int nextSequence, long offset) {}

    /** So many batches of a producer id a node remembers. */
    private static final int REMEMBERED = 5;

    static final Partition AT = new Partition("t", 0);

    final List<Api> requests = new CopyOnWriteArrayList<>();
    /** Partitions that were added to transactions: id, producer id, epoch and partition. */
    final List<String> added = new CopyOnWriteArrayList<>();

    final List<Integer> connections = new CopyOnWriteArrayList<>();
    private final Map<Api, Queue<Step>> scripts = new EnumMap<>(Api.class);
    private final Map<Long, Deque<Last>> producers = new HashMap<>();
    private final Map<String, Deque<String>> transactions = new TreeMap<>();
    private final List<byte[]> batches = new ArrayList<>();
    private final List<Socket> open = new CopyOnWriteArrayList<>();
    private final ServerSocket server;
    private List<ScriptedListener> nodes = List.of(this);
    private final Map<String, String> configs = new TreeMap<>();
    private boolean hasTopic = true;
    private int topicNumber;
    private int partitions = 1;
    private int leader = 1;
    private long logStart = 3;
    private long end = 3;
    private long producerIds = 100;

    public ScriptedListener() throws IOException {
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        for (Api api : Api.values()) {
            scripts.put(api, new ConcurrentLinkedQueue<>());
        }
        start(this::accept);
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "scripted-listener");
        thread.setDaemon(true);
        thread.start();
    }

    InetSocketAddress address() {
        return InetSocketAddress.createUnresolved("127.0.0.1", server.getLocalPort());
    }

    /** As options name it. */
    public String servers() {
        return "127.0.0.1:" + server.getLocalPort();
    }

    public int connections() {
        return connections.size();
    }

    /** The answers to the next appends are lost, so many times. */
    public void loseAppends(int count) {
        for (int number = 0; number < count; number++) {
            next(Api.PRODUCE, Step.lostAfter());
        }
    }

    /** The next append is not answered. */
    public void ignoreAppend() {
        next(Api.PRODUCE, Step.of(Step.What.SILENCE));
    }

    /** The next append is refused for good. */
    public void refuseAppend() {
        next(Api.PRODUCE, Step.refused(Code.INVALID_RECORD));
    }

    /** The next fetches say that the offset is outside of the log, as those of a leader that lags. */
    public void hideOffsets(int count) {
        for (int number = 0; number < count; number++) {
            next(Api.FETCH_BY_ID, Step.refused(Code.OFFSET_OUT_OF_RANGE));
        }
    }

    /** The next fetches are answered without a record, as of a node that still has to read it. */
    public void withholdRecords(int count) {
        for (int number = 0; number < count; number++) {
            next(Api.FETCH_BY_ID, Step.withoutRecords());
        }
    }

    /** The next questions for proven ends find no leader. */
    public void hideEnds(int count) {
        for (int number = 0; number < count; number++) {
            next(Api.READ_OFFSET, Step.refused(Code.NOT_LEADER_OR_FOLLOWER));
        }
    }

    /** Appends a batch with so many records, as another client does. */
    public synchronized void append(byte[] batch, int count) {
        ByteBuffer.wrap(batch).putLong(0, end);
        batches.add(batch);
        end += count;
        notifyAll();
    }

    /** Records below were deleted. */
    public synchronized void beginAt(long offset) {
        logStart = offset;
        end = Math.max(end, offset);
    }

    void next(Api api, Step... steps) {
        scripts.get(api).addAll(List.of(steps));
    }

    int asked(Api api) {
        return (int) requests.stream().filter(one -> one == api).count();
    }

    public synchronized List<byte[]> batches() {
        return List.copyOf(batches);
    }

    /** The topic is gone, and so is what was known of producers. */
    public synchronized void dropTopic() {
        hasTopic = false;
        forgetProducers();
    }

    /** Another topic of the name, with another id. */
    public synchronized void recreateTopic() {
        dropTopic();
        hasTopic = true;
        topicNumber++;
    }

    /** The next looks find no topic, as at a node that lags. */
    public void hideTopic(int looks) {
        for (int look = 0; look < looks; look++) {
            next(Api.METADATA, Step.refused(Code.UNKNOWN_TOPIC_OR_PARTITION));
        }
    }

    public synchronized boolean hasTopic() {
        return hasTopic;
    }

    /** Nodes of one quorum, with ids from 1 on. The first one leads, as all of them say. */
    public static void join(ScriptedListener... all) {
        for (ScriptedListener one : all) {
            one.nodes = List.of(all);
        }
    }

    /** It names this node alone, as a name does that leads to wherever the node is. */
    void leadTo(ScriptedListener node) {
        nodes = List.of(node);
    }

    /** This node leads, as it says itself. */
    public synchronized void lead() {
        leader = nodes.indexOf(this) + 1;
    }

    /** The topic has so many partitions from now on. Only the first one has records. */
    public synchronized void growTo(int count) {
        partitions = count;
    }

    /** A setting of the topic. */
    public synchronized void config(String name, String value) {
        configs.put(name, value);
    }

    /** The next looks at settings find no topic. */
    public void hideConfigs(int looks) {
        for (int look = 0; look < looks; look++) {
            next(Api.DESCRIBE_CONFIGS, Step.refused(Code.UNKNOWN_TOPIC_OR_PARTITION));
        }
    }

    /** Somebody else makes the topic before the next creation. */
    public void createBefore() {
        next(Api.CREATE_TOPICS, Step.doubted(Code.TOPIC_ALREADY_EXISTS));
    }

    /** The answer to the next creation is lost. */
    public void loseCreation() {
        next(Api.CREATE_TOPICS, Step.lostAfter(), Step.doubted(Code.TOPIC_ALREADY_EXISTS));
    }

    /** How often a deletion was asked for. */
    public int deletions() {
        return asked(Api.DELETE_TOPICS);
    }

    synchronized void forgetProducers() {
        producers.clear();
    }

    /** As a node that restarts does. */
    public void closeConnections() throws IOException {
        for (Socket socket : open) {
            // The close waits for the thread that reads from the socket, and clients are to see it now.
            if (!socket.isClosed()) {
                socket.shutdownOutput();
            }
            socket.close();
        }
        open.clear();
    }

    @Override
    public void close() throws IOException {
        server.close();
        closeConnections();
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                open.add(socket);
                connections.add(connections.size());
                start(() -> serve(socket));
            } catch (IOException closed) {
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            while (answer(in, out)) {
                out.flush();
            }
        } catch (EOFException gone) {
            // The client has closed it.
        } catch (IOException broken) {
            // One of the two has closed it.
        }
    }

    private boolean answer(DataInputStream in, DataOutputStream out) throws IOException {
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        ByteBuffer request = ByteBuffer.wrap(frame);
        int key = request.getShort();
        int version = request.getShort();
        int correlation = request.getInt();
        request.position(request.position() + 2 + request.getShort(request.position()) + 1);
        Api api = List.of(Api.values()).stream().filter(one -> one.key() == key && one.version() == version).findAny().orElseThrow();
        requests.add(api);
        Step step = scripts.get(api).poll();
        step = step == null ? Step.served() : step;
        Out body = handle(api, new In(request), step);
        switch (step.what()) {
            case CLOSED:
                return false;
            case SILENCE:
                return true;
            case OTHER_CORRELATION:
                correlation--;
                break;
            case GARBAGE:
                body = new Out().i32(0).i32(-1);
                break;
            default:
                break;
        }
        out.writeInt(5 + body.size());
        out.writeInt(correlation);
        out.writeByte(0);
        out.write(body.array(), 0, body.size());
        return true;
    }

    private synchronized Out handle(Api api, In in, Step step) {
        return switch (api) {
            case METADATA -> metadata(step);
            case INIT_PRODUCER_ID -> new Out().i32(0).i16(step.code().number()).i64(producerIds++).i16(0).noTags();
            case ADD_PARTITIONS_TO_TXN -> addPartitions(in, step);
            case FIND_COORDINATOR -> new Out().i32(0).i16(step.code().number()).text(null).i32(1).text("127.0.0.1")
                    .i32(server.getLocalPort()).noTags();
            case LIST_TRANSACTIONS -> new Out().i32(0).i16(step.code().number()).texts(List.of())
                    .array(transactions.keySet(), (row, id) -> row.text(id).i64(7).text("Ongoing")).noTags();
            case DESCRIBE_TRANSACTIONS -> describe(in);
            case PRODUCE -> produce(in, step);
            case FETCH -> fetch(in, step, false);
            case FETCH_BY_ID -> fetch(in, step, true);
            case READ_OFFSET -> new Out().text(null).i16(0).array(List.of(AT), (topic, same) -> topic.text("t")
                    .array(List.of(AT), (one, again) -> one.i32(0).i16(step.code().number()).i64(end).i32(1).i32(1)));
            case DESCRIBE_CONFIGS -> describeConfigs(step);
            case LIST_OFFSETS -> listOffsets(step);
            case DELETE_TOPICS -> deleteTopic(in, step);
            case CREATE_TOPICS -> createTopic(step);
            default -> throw new IllegalStateException(api + " is not scripted");
        };
    }

    /** What is behind a state whose markers all stand. */
    static final String MARKED = "/marked";

    /** Transactional ids that are in these states, one after another as they are asked for; the last one stays. */
    public synchronized void hasTransaction(String id, String... states) {
        transactions.put(id, new ArrayDeque<>(List.of(states)));
    }

    private Out describe(In in) {
        return new Out().i32(0).array(in.texts(), (row, id) -> {
            Deque<String> states = transactions.getOrDefault(id, new ArrayDeque<>());
            String next = states.size() > 1 ? states.removeFirst() : states.peekFirst();
            String state = next == null ? "" : next.replace(MARKED, "");
            List<Partition> unmarked = state.equals(next) ? List.of(AT) : List.of();
            row.i16(next == null ? Code.TRANSACTIONAL_ID_NOT_FOUND.number() : 0).text(id).text(state)
                    .i32(1).i64(0).i64(7).i16(3).array(unmarked, (topic, same) -> topic.text("t").uvarint(2).i32(0));
        }).noTags();
    }

    private Out addPartitions(In in, Step step) {
        String id = in.text();
        String producer = id + "/" + in.i64() + "/" + in.i16() + "/";
        List<Partition> asked = new ArrayList<>();
        in.array(topic -> {
            String name = topic.text();
            return topic.numbers().stream().map(number -> asked.add(new Partition(name, number))).toList();
        });
        asked.forEach(at -> added.add(producer + at));
        return new Out().i32(0).array(asked, (topic, at) -> topic.text(at.topic())
                .array(List.of(at), (one, same) -> one.i32(at.partition()).i16(step.code().number()))).noTags();
    }

    private Out createTopic(Step step) {
        hasTopic |= step.hasEffect();
        return new Out().i32(0).array(List.of(AT), (one, same) -> one.text("t").i64(0).i64(topicNumber)
                .i16(step.code().number()).text("scripted").i32(1).i16(1).uvarint(1));
    }

    /** The last offset, as of a log that is copied to its end. */
    private Out listOffsets(Step step) {
        return new Out().i32(0).array(List.of(AT), (topic, same) -> topic.text("t").array(List.of(AT), (one, again) ->
                one.i32(0).i16(step.code().number()).i64(-1).i64(end - 1).i32(1))).noTags();
    }

    private Out describeConfigs(Step step) {
        return new Out().i32(0).array(List.of(AT), (topic, same) -> topic.i16(step.code().number()).text(null).i8(2).text("t")
                .array(configs.entrySet(), (one, each) -> one.text(each.getKey()).text(each.getValue()).bool(false).i8(1)
                        .bool(false).uvarint(1).i8(2).text(null))).noTags();
    }

    /** By its id. */
    private Out deleteTopic(In in, Step step) {
        long number = in.array(topic -> {
            topic.text();
            return topic.slice(16).getLong(Long.BYTES);
        }).get(0);
        boolean isKnown = hasTopic && number == topicNumber;
        hasTopic &= !(isKnown && step.hasEffect());
        Code code = isKnown ? step.code() : Code.UNKNOWN_TOPIC_ID;
        return new Out().i32(0).array(List.of(AT), (one, same) -> one.text("t").noId().i16(code.number()).text(null));
    }

    private Out metadata(Step step) {
        boolean isLeaderless = step.code() == Code.LEADER_NOT_AVAILABLE;
        boolean isListed = hasTopic && step.code() != Code.UNKNOWN_TOPIC_OR_PARTITION;
        Code code = isListed ? Code.NONE : Code.UNKNOWN_TOPIC_OR_PARTITION;
        return new Out()
                .i32(0)
                .array(nodes, (node, one) ->
                        node.i32(nodes.indexOf(one) + 1).text("127.0.0.1").i32(one.server.getLocalPort()).text(null))
                .text("cluster")
                .i32(isLeaderless ? -1 : 1)
                .array(List.of(AT), (topic, same) -> topic.i16(code.number()).text("t").i64(0).i64(topicNumber).bool(false)
                        .array(IntStream.range(0, isListed ? partitions : 0).boxed().toList(), (one, index) ->
                                one.i16(0).i32(index).i32(leader).i32(1).uvarint(1).uvarint(1).uvarint(1))
                        .i32(0))
                .noTags();
    }

    private Out produce(In in, Step step) {
        in.text();
        in.i16();
        in.i32();
        in.uvarint();
        in.text();
        in.uvarint();
        in.i32();
        ByteBuffer records = in.bytes();
        byte[] batch = new byte[records.remaining()];
        records.get(batch);
        Code code = step.code();
        long offset = -1;
        if (step.hasEffect() && !hasTopic) {
            code = Code.UNKNOWN_TOPIC_OR_PARTITION;
        } else if (step.hasEffect()) {
            offset = append(batch);
            code = offset < 0 ? Code.OUT_OF_ORDER_SEQUENCE_NUMBER : code;
        }
        Code told = code;
        long first = offset;
        return new Out()
                .array(List.of(AT), (topic, same) -> topic.text("t").array(List.of(AT), (one, again) -> one.i32(0)
                        .i16(told.number()).i64(told == Code.NONE ? first : -1).i64(-1).i64(0).uvarint(1).text("scripted")))
                .i32(0)
                .noTags();
    }

    /** The offset; -1 where the sequence does not follow. */
    private long append(byte[] batch) {
        ByteBuffer header = ByteBuffer.wrap(batch);
        long producer = header.getLong(Batches.PRODUCER_ID_AT);
        int sequence = header.getInt(Batches.BASE_SEQUENCE_AT);
        int count = header.getInt(57);
        Deque<Last> known = producers.computeIfAbsent(producer, absent -> new ArrayDeque<>());
        for (Last each : known) {
            if (each.sequence() == sequence) {
                return each.offset();
            }
        }
        if ((known.isEmpty() ? 0 : known.getLast().nextSequence()) != sequence) {
            return -1;
        }
        known.addLast(new Last(sequence, sequence + count, end));
        if (known.size() > REMEMBERED) {
            known.removeFirst();
        }
        append(batch, count);
        return end - count;
    }

    /** Holds it while there is nothing to tell, as a node does. */
    private Out fetch(In in, Step step, boolean isById) {
        in.i32();
        int waitMs = in.i32();
        in.i32();
        in.i32();
        in.i8();
        in.i64();
        in.uvarint();
        boolean isKnown = true;
        if (isById) {
            isKnown = in.slice(16).getLong(Long.BYTES) == topicNumber;
        } else {
            in.text();
        }
        in.uvarint();
        in.i64();
        long offset = in.i64();
        await(offset, isById && step.code() == Code.NONE ? waitMs : 0);
        Out records = new Out();
        for (byte[] batch : step.hasEffect() ? batches : List.<byte[]>of()) {
            ByteBuffer header = ByteBuffer.wrap(batch);
            if (header.getLong(0) + header.getInt(57) > offset) {
                records.raw(batch, 0, batch.length);
            }
        }
        boolean isOutside = offset > end || offset < logStart;
        Code code = step.code() == Code.NONE && isOutside ? Code.OFFSET_OUT_OF_RANGE : step.code();
        Code told = hasTopic && isKnown ? code : Code.UNKNOWN_TOPIC_ID;
        return new Out()
                .i32(0)
                .i16(0)
                .i32(0)
                .array(List.of(AT), (topic, same) -> named(topic, isById).array(List.of(AT), (one, again) -> one.i32(0)
                        .i16(told.number()).i64(end).i64(end).i64(logStart).uvarint(0).i32(-1)
                        .uvarint(records.size() + 1).append(records)))
                .noTags();
    }

    private static Out named(Out topic, boolean isById) {
        return isById ? topic.noId() : topic.text("t");
    }

    private void await(long offset, int waitMs) {
        long until = System.nanoTime() + waitMs * 1_000_000L;
        long leftMs = waitMs;
        while (hasTopic && offset == end && leftMs > 0) {
            try {
                wait(leftMs);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                return;
            }
            leftMs = (until - System.nanoTime()) / 1_000_000;
        }
    }
}
