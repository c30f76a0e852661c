package io.raftlake.spark.log;

import io.raftlake.spark.log.Logs.Partition;
import io.raftlake.spark.log.Logs.Topic;
import io.raftlake.spark.log.Messages.Metadata;
import io.raftlake.spark.quorum.Deadline;
import io.raftlake.spark.quorum.RefusedException;
import io.raftlake.spark.quorum.UnknownOutcomeException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What is known of the cluster: where its nodes are, its topics, and who leads which partition. What is cached may be wrong at
 * any time; a caller that learns so makes it {@link #forget} the topic.
 */
final class Cluster {
    /** A topic that no node knows may be about to appear for so long: nodes hear of topics one after another. */
    static final long UNKNOWN_TOPIC_GRACE_MS = 1_000;

    private static final long CONNECT_MS_MAX = 3_000;

    /** What is cached of a topic is asked for again after so long. */
    private static final long AGE_NS_MAX = 300_000_000_000L;

    /** A topic; by partition the leader, null where there is none, and the ids of the nodes that hold it. */
    record Known(Topic topic, List<InetSocketAddress> leaders, List<List<Integer>> replicas, long atNs) {
        boolean hasLeaders(int count) {
            return leaders.size() >= count && !leaders.contains(null);
        }

        /** Null is the id of any. */
        boolean is(String id) {
            return id == null || id.equals(topic.id());
        }
    }

    private final List<InetSocketAddress> bootstrap;
    private final Idle<Connection> idleConnections = new Idle<>();
    private final Idle<Pipe> idlePipes = new Idle<>();
    private final Map<String, Known> topics = new ConcurrentHashMap<>();
    private volatile List<InetSocketAddress> nodes = List.of();
    private volatile Map<Integer, InetSocketAddress> byId = Map.of();
    private final AtomicInteger turn = new AtomicInteger();

    Cluster(List<InetSocketAddress> bootstrap) {
        this.bootstrap = List.copyOf(bootstrap);
    }

    @Override
    public String toString() {
        return String.join(",", bootstrap.stream().map(node -> node.getHostString() + ":" + node.getPort()).toList());
    }

    // --- one node ----------------------------------------------------------------------------------------------------

    /**
     * The answer of this node. {@link Lost} where it gives none within so many ms. A call has a connection for itself, so that no
     * append waits behind a read that waits for records.
     */
    ByteBuffer ask(InetSocketAddress node, Api api, Out body, long timeoutMs) throws IOException {
        Connection idle = idleConnections.take(node);
        Connection connection = idle != null ? idle : Connection.open(node, Math.min(CONNECT_MS_MAX, timeoutMs));
        ByteBuffer answer = connection.ask(api, body, timeoutMs);
        idleConnections.give(connection);
        return answer;
    }

    /** A pipe to this node for who selects with this selector; {@link #leave} takes it back. */
    Pipe pipe(InetSocketAddress node, Selector selector) throws IOException {
        Pipe idle = idlePipes.take(node);
        Pipe pipe = idle != null ? idle : Pipe.to(node);
        pipe.register(selector);
        return pipe;
    }

    /** Its user has closed the selector, and is done with it. */
    void leave(Pipe pipe) {
        if (pipe.isIdle()) {
            idlePipes.give(pipe);
        } else {
            pipe.close();
        }
    }

    /** How an answer is read, and what it may refuse. */
    @FunctionalInterface
    interface Meaning<T> {
        T of(ByteBuffer answer) throws IOException, Refusal;
    }

    /**
     * The result of a request that any node takes: another one is asked until one answers, and after errors that pass. {@code
     * isChange}: it may be found done already after it was sent once, and {@link UnknownOutcomeException} tells that nobody
     * knows. Refusals that do not pass go to the caller.
     */
    <T> T askAny(Api api, Out body, Tries tries, boolean isChange, Meaning<T> meaning) throws IOException, Refusal {
        boolean mayStand = false;
        while (true) {
            InetSocketAddress node = candidate();
            try {
                return meaning.of(ask(node, api, body, isChange ? tries.attemptMs(0) : tries.askMs()));
            } catch (Lost lost) {
                tries.note(node, lost);
                mayStand |= lost.wasSent();
            } catch (Refusal refusal) {
                if (!refusal.code().passes() || tries.isOver() && !isChange) {
                    throw refusal;
                }
                tries.note(node, refusal);
                mayStand |= refusal.code() == Code.REQUEST_TIMED_OUT;
            }
            turn.incrementAndGet();
            if (tries.isOver()) {
                if (mayStand && isChange) {
                    throw new UnknownOutcomeException(tries.what() + " was sent, and no answer decides; whether it happened is "
                            + "unknown: " + tries.said());
                }
                throw tries.unavailable();
            }
            tries.pause();
        }
    }

    /** The next question goes to another node. */
    void passOn() {
        turn.incrementAndGet();
    }

    /** The nodes that are known, and those that were named at first: the one whose turn it is. */
    private InetSocketAddress candidate() {
        return all().get(0);
    }

    /** The same, the one whose turn it is before the others. All nodes may have moved, and the names for them may lead there. */
    private List<InetSocketAddress> all() {
        Set<InetSocketAddress> known = new LinkedHashSet<>(nodes);
        known.addAll(bootstrap);
        List<InetSocketAddress> all = new ArrayList<>(known);
        Collections.rotate(all, -Math.floorMod(turn.get(), all.size()));
        return all;
    }

    /** Of the nodes that are known. */
    Set<Integer> nodeIds() {
        return byId.keySet();
    }

    /** Null where no node of this id is known. */
    InetSocketAddress node(int id) {
        return byId.get(id);
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    /** Topics by name, asked for anew; all of them for null. Of those that do not exist there is nothing. */
    List<Known> describe(List<String> names, Tries tries) throws IOException {
        try {
            return learn(askAny(Api.METADATA, Messages.metadata(names), tries, false, Messages::metadata));
        } catch (Refusal refusal) {
            if (refusal.code().passes()) {
                throw tries.unavailable();
            }
            throw new RefusedException(tries.what() + ": " + refusal.getMessage());
        }
    }

    private List<Known> learn(Metadata metadata) {
        if (!metadata.nodes().isEmpty()) {
            nodes = List.copyOf(new TreeMap<>(metadata.nodes()).values());
            byId = Map.copyOf(metadata.nodes());
        }
        List<Known> found = new ArrayList<>();
        for (Messages.TopicMetadata topic : metadata.topics()) {
            if (topic.code() != Code.NONE) {
                topics.remove(topic.name());
                continue;
            }
            List<InetSocketAddress> leaders = new ArrayList<>();
            topic.leaders().forEach(leader -> leaders.add(metadata.nodes().get(leader)));
            Known known = new Known(new Topic(topic.name(), topic.id(), leaders.size()), leaders,
                    topic.replicas(), System.nanoTime());
            topics.put(topic.name(), known);
            found.add(known);
        }
        return found;
    }

    /** Asked for anew: of every node, until one knows it. Those that do not answer are given a moment. */
    Optional<Known> topic(String name, Tries tries) throws IOException {
        Deadline grace = new Deadline(UNKNOWN_TOPIC_GRACE_MS);
        while (true) {
            Set<InetSocketAddress> absent = new HashSet<>();
            for (InetSocketAddress node : all()) {
                try {
                    Out request = Messages.metadata(List.of(name));
                    List<Known> found = learn(Messages.metadata(ask(node, Api.METADATA, request, tries.askMs())));
                    if (!found.isEmpty()) {
                        return Optional.of(found.get(0));
                    }
                    absent.add(node);
                } catch (Lost lost) {
                    tries.note(node, lost);
                    turn.incrementAndGet();
                } catch (Refusal refusal) {
                    if (!refusal.code().passes()) {
                        throw new RefusedException(tries.what() + ": " + refusal.getMessage());
                    }
                    tries.note(node, refusal);
                }
            }
            // A name that leads to no node is in nobody's way, where the nodes are known.
            boolean areAll = !absent.isEmpty() && absent.containsAll(nodes);
            if (areAll || !absent.isEmpty() && grace.isOver()) {
                return Optional.empty();
            }
            if (tries.isOver()) {
                throw tries.unavailable();
            }
            tries.pause();
        }
    }

    /** The topic as it was seen last, within minutes; asked for where it was not. */
    Optional<Known> known(String name, Tries tries) throws IOException {
        Known known = topics.get(name);
        return known != null && System.nanoTime() - known.atNs() < AGE_NS_MAX ? Optional.of(known) : topic(name, tries);
    }

    /**
     * The topic of this id, null for any, asked for anew. A node that names another topic is not believed: it may lag, and lead
     * that topic still. {@link OtherTopicException} where no node names this one in time.
     */
    Known topic(String name, String id, Tries tries) throws IOException {
        Deadline grace = new Deadline(UNKNOWN_TOPIC_GRACE_MS);
        while (true) {
            Known known = topic(name, tries)
                    .orElseThrow(() -> new UnknownTopicException(tries.what() + ": there is no topic " + name));
            if (known.is(id)) {
                return known;
            }
            if (grace.isOver() || tries.isOver()) {
                throw new OtherTopicException(tries.what() + ": the topic of this name is another one");
            }
            turn.incrementAndGet();
            tries.pause();
        }
    }

    /** Where the partition's leader is; null while it has none. UnknownTopicException where there is no such partition. */
    InetSocketAddress leader(Partition at, Tries tries) throws IOException {
        return leader(at, null, tries);
    }

    /** The same, in the topic of this {@code id} alone; null for any. */
    InetSocketAddress leader(Partition at, String id, Tries tries) throws IOException {
        Known known = topics.get(at.topic());
        if (known != null && System.nanoTime() - known.atNs() < AGE_NS_MAX && known.is(id)
                && at.partition() < known.leaders().size() && at.partition() >= 0) {
            return known.leaders().get(at.partition());
        }
        Deadline grace = new Deadline(UNKNOWN_TOPIC_GRACE_MS);
        while (true) {
            known = topic(at.topic(), id, tries);
            if (at.partition() >= 0 && at.partition() < known.leaders().size()) {
                return known.leaders().get(at.partition());
            }
            if (grace.isOver() || tries.isOver()) {
                throw new UnknownTopicException(tries.what() + ": topic " + at.topic() + " has " + known.leaders().size()
                        + " partitions, and not " + at.partition());
            }
            // The node that has answered may lag: another one is asked.
            turn.incrementAndGet();
            tries.pause();
        }
    }

    void forget(String topic) {
        topics.remove(topic);
    }

    // --- leaders -----------------------------------------------------------------------------------------------------

    /** The result of a request that the partition's leader answers, and that may be repeated. */
    <T> T askLeader(Partition at, Api api, Out body, Tries tries, long waitMs, Meaning<T> meaning)
            throws IOException, Refusal {
        return askLeader(at, null, api, body, tries, waitMs, meaning);
    }

    /** The same, in the topic of this {@code id} alone; null for any. */
    <T> T askLeader(Partition at, String id, Api api, Out body, Tries tries, long waitMs, Meaning<T> meaning)
            throws IOException, Refusal {
        while (true) {
            InetSocketAddress leader = leader(at, id, tries);
            if (leader == null) {
                tries.note(at.toString(), "no leader is known");
            } else {
                try {
                    return meaning.of(ask(leader, api, body, tries.attemptMs(waitMs)));
                } catch (Lost lost) {
                    tries.note(leader, lost);
                } catch (Refusal refusal) {
                    if (!refusal.code().passes()) {
                        throw refusal;
                    }
                    tries.note(leader, refusal);
                }
            }
            forget(at.topic());
            turn.incrementAndGet();
            if (tries.isOver()) {
                throw tries.unavailable();
            }
            tries.pause();
        }
    }
}
