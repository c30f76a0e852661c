package io.raftlake.spark.kit;

import io.raftlake.spark.log.LogStartException;
import io.raftlake.spark.log.Logs;
import io.raftlake.spark.quorum.RefusedException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;

/** Logs in memory, with the bounds and the refusals of a node. {@link #compact} does at once what a node does in time. */
public final class MemoryLogs implements Logs {
    private static final int BATCH_BYTES_MAX = 1 << 20;
    private static final int RECORD_HEAD_BYTES = 16;

    /** A quorum's own records stand at the first offsets of a log, and readers never get them. */
    private static final int OFFSETS_OF_THE_QUORUM = 3;

    private static final class Log {
        private final List<Numbered> records = new ArrayList<>();
        private long start;
        private long end = OFFSETS_OF_THE_QUORUM;
    }

    private record Made(Topic topic, Map<String, String> configs, List<Log> logs) {}

    private final TreeMap<String, Made> topics = new TreeMap<>();

    @Override
    public synchronized Optional<Topic> topic(String name) {
        return Optional.ofNullable(topics.get(name)).map(Made::topic);
    }

    @Override
    public synchronized Topic ensureTopic(String name, int partitions, Map<String, String> configs) throws IOException {
        if (!name.matches("[A-Za-z0-9._-]{1,249}") || partitions < 1) {
            throw new RefusedException("topic '" + name + "' with " + partitions + " partitions cannot be created");
        }
        return topics.computeIfAbsent(name, absent -> made(name, newId(), partitions, Map.copyOf(configs), List.of())).topic();
    }

    @Override
    public synchronized Optional<Created> createTopic(String name, int partitions, Map<String, String> configs)
            throws IOException {
        boolean isThere = topics.containsKey(name);
        Topic topic = ensureTopic(name, partitions, configs);
        return isThere ? Optional.empty() : Optional.of(new Created(topic, true));
    }

    private static Made made(String name, String id, int partitions, Map<String, String> configs, List<Log> before) {
        List<Log> logs = new ArrayList<>(before);
        while (logs.size() < partitions) {
            logs.add(new Log());
        }
        return new Made(new Topic(name, id, partitions), configs, logs);
    }

    private static String newId() {
        UUID id = UUID.randomUUID();
        byte[] bytes = ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    @Override
    public synchronized void addPartitions(String name, int partitions) throws IOException {
        Made made = require(name);
        if (made.topic().partitions() < partitions) {
            topics.put(name, made(name, made.topic().id(), partitions, made.configs(), made.logs()));
        }
    }

    @Override
    public synchronized void deleteTopic(String name) {
        topics.remove(name);
        notifyAll();
    }

    @Override
    public synchronized void deleteTopic(Topic topic) {
        if (topics.containsKey(topic.name()) && topics.get(topic.name()).topic().id().equals(topic.id())) {
            deleteTopic(topic.name());
        }
    }

    @Override
    public synchronized List<String> topics(String prefix) {
        return topics.keySet().stream().filter(name -> name.startsWith(prefix)).toList();
    }

    /** Those that the topic was created with. */
    @Override
    public synchronized Map<String, String> configs(String name) throws IOException {
        return require(name).configs();
    }

    @Override
    public synchronized long append(Partition at, List<LogRecord> records) throws IOException {
        if (records.isEmpty()) {
            throw new IllegalArgumentException("an append needs a record");
        }
        Log log = require(at);
        long bytes = records.stream().mapToLong(MemoryLogs::bytes).sum();
        String most = require(at.topic()).configs().get("max.message.bytes");
        if (bytes > (most == null ? BATCH_BYTES_MAX : Integer.parseInt(most))) {
            throw new RefusedException(at + ": a batch of " + bytes + " bytes is too large");
        }
        long first = log.end;
        for (LogRecord record : records) {
            log.records.add(new Numbered(log.end++, System.currentTimeMillis(), record));
        }
        notifyAll();
        return first;
    }

    private static int bytes(LogRecord record) {
        return RECORD_HEAD_BYTES + (record.key() == null ? 0 : record.key().length)
                + (record.value() == null ? 0 : record.value().length);
    }

    @Override
    public synchronized Fetched fetch(Partition at, long offset, int maxBytes, int maxWaitMs) throws IOException {
        long until = System.nanoTime() + maxWaitMs * 1_000_000L;
        while (true) {
            Log log = require(at);
            if (offset < log.start) {
                throw new LogStartException(at, offset, log.start);
            }
            if (offset > log.end) {
                throw new RefusedException(at + ": offset " + offset + " lies behind the end, which is " + log.end);
            }
            Fetched got = read(log, offset, maxBytes);
            long remainingMs = (until - System.nanoTime()) / 1_000_000;
            if (got.nextOffset() > offset || remainingMs <= 0) {
                return got;
            }
            try {
                wait(remainingMs);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new InterruptedIOException("interrupted while it waited for records of " + at);
            }
        }
    }

    private static Fetched read(Log log, long offset, int maxBytes) {
        List<Numbered> found = new ArrayList<>();
        long bytes = 0;
        for (Numbered record : log.records) {
            if (record.offset() < offset) {
                continue;
            }
            bytes += bytes(record.record());
            if (bytes > maxBytes && !found.isEmpty()) {
                return new Fetched(found, record.offset(), log.start, log.end);
            }
            found.add(record);
        }
        return new Fetched(found, log.end, log.start, log.end);
    }

    @Override
    public synchronized long earliest(Partition at) throws IOException {
        return require(at).start;
    }

    @Override
    public synchronized long end(Partition at) throws IOException {
        return require(at).end;
    }

    @Override
    public synchronized void deleteRecords(Partition at, long beforeOffset) throws IOException {
        Log log = require(at);
        if (beforeOffset < 0 || beforeOffset > log.end) {
            throw new RefusedException(at + ": offset " + beforeOffset + " lies behind the end, which is " + log.end);
        }
        log.start = Math.max(log.start, beforeOffset);
        log.records.removeIf(record -> record.offset() < log.start);
    }

    /** Keeps the last record of each key, and of tombstones nothing. Offsets stay. */
    public synchronized void compact(String name) throws IOException {
        for (Log log : require(name).logs()) {
            Set<ByteBuffer> seen = new HashSet<>();
            List<Numbered> kept = new ArrayList<>();
            for (int index = log.records.size() - 1; index >= 0; index--) {
                Numbered record = log.records.get(index);
                if (seen.add(ByteBuffer.wrap(record.record().key())) && record.record().value() != null) {
                    kept.add(0, record);
                }
            }
            log.records.clear();
            log.records.addAll(kept);
        }
    }

    private Made require(String name) throws IOException {
        Made made = topics.get(name);
        if (made == null) {
            throw new RefusedException("there is no topic " + name);
        }
        return made;
    }

    private Log require(Partition at) throws IOException {
        Made made = require(at.topic());
        if (at.partition() < 0 || at.partition() >= made.topic().partitions()) {
            throw new RefusedException("there is no partition " + at);
        }
        return made.logs().get(at.partition());
    }
}
