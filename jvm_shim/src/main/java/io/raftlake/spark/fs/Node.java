package io.raftlake.spark.fs;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.KeySpace;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.UUID;
import java.util.zip.CRC32C;

/**
 * What a key under {@code /fs/} holds: a directory, an inline file, or a file whose content is a blob.
 *
 * <p>Bytes: 1 (the format), the kind 'D', 'I' or 'B', u32 length of the JSON (big endian), the JSON, and for 'I' the content.
 * JSON: {@code mtime} (ms) and {@code id} of all; {@code length} and {@code crc32c} of files; {@code blob} with its
 * {@code uri}, {@code chunk_bytes} and {@code chunk_crc32c}. Unknown members are left alone: a rename keeps the bytes.
 */
public final class Node {
    /** The kinds, with their byte. */
    public enum Kind {
        DIRECTORY('D'),
        INLINE('I'),
        BLOB('B');

        private final byte code;

        Kind(char code) {
            this.code = (byte) code;
        }
    }

    /** Where a blob is, and the checksums of its chunks, each of {@code chunkBytes} but the last. */
    public record Blob(String uri, int chunkBytes, List<Long> chunkCrcs) {}

    /** Room for the head of an inline file in a value; content and head stay below the largest value. */
    public static final int INLINE_BYTES_MAX = KeySpace.VALUE_BYTES_MAX - 4096;

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final byte FORMAT = 1;
    private static final int HEAD_BYTES = 6;

    private final Kind kind;
    private final JsonNode facts;
    private final byte[] content;

    private Node(Kind kind, JsonNode facts, byte[] content) {
        this.kind = kind;
        this.facts = facts;
        this.content = content;
    }

    public static Node directory(long mtimeMs) {
        return new Node(Kind.DIRECTORY, head(mtimeMs, UUID.randomUUID().toString()), null);
    }

    public static Node inline(long mtimeMs, byte[] content) {
        ObjectNode facts = head(mtimeMs, UUID.randomUUID().toString());
        facts.put("length", (long) content.length).put("crc32c", crc(content, 0, content.length));
        return new Node(Kind.INLINE, facts, content);
    }

    /** {@code crc} is that of the whole content, as an unsigned number. */
    public static Node blob(long mtimeMs, String id, long length, long crc, Blob blob) {
        ObjectNode facts = head(mtimeMs, id);
        facts.put("length", length).put("crc32c", crc);
        ObjectNode place = facts.putObject("blob").put("uri", blob.uri()).put("chunk_bytes", blob.chunkBytes());
        blob.chunkCrcs().forEach(place.putArray("chunk_crc32c")::add);
        return new Node(Kind.BLOB, facts, null);
    }

    private static ObjectNode head(long mtimeMs, String id) {
        return MAPPER.createObjectNode().put("mtime", mtimeMs).put("id", id);
    }

    static long crc(byte[] bytes, int from, int length) {
        CRC32C crc = new CRC32C();
        crc.update(bytes, from, length);
        return crc.getValue();
    }

    /** An IOException names the key whose value is no node of this format. */
    public static Node decode(Entry entry) throws IOException {
        byte[] value = entry.value();
        if (value.length < HEAD_BYTES || value[0] != FORMAT) {
            throw spoilt(entry, "it begins with no format that this version of raftlake knows");
        }
        int length = ByteBuffer.wrap(value, 2, 4).getInt();
        if (length < 2 || length > value.length - HEAD_BYTES) {
            throw spoilt(entry, "its head says " + length + " bytes of JSON");
        }
        JsonNode facts;
        try {
            facts = MAPPER.readTree(value, HEAD_BYTES, length);
        } catch (IOException noJson) {
            throw spoilt(entry, "its JSON does not parse: " + noJson.getMessage());
        }
        for (Kind kind : Kind.values()) {
            if (kind.code == value[1]) {
                return checked(entry, kind, facts, HEAD_BYTES + length);
            }
        }
        throw spoilt(entry, "its kind is " + value[1]);
    }

    private static Node checked(Entry entry, Kind kind, JsonNode facts, int contentAt) throws IOException {
        byte[] value = entry.value();
        if (!facts.path("mtime").isIntegralNumber()) {
            throw spoilt(entry, "it has no mtime");
        }
        boolean isFile = kind != Kind.DIRECTORY;
        if (isFile && !(facts.path("length").isIntegralNumber() && facts.path("crc32c").isIntegralNumber())) {
            throw spoilt(entry, "it has no length or no crc32c");
        }
        if (kind == Kind.BLOB && !facts.path("blob").isObject()) {
            throw spoilt(entry, "it says of no blob where it is");
        }
        if (kind != Kind.INLINE) {
            return new Node(kind, facts, null);
        }
        byte[] content = java.util.Arrays.copyOfRange(value, contentAt, value.length);
        if (content.length != facts.path("length").longValue()) {
            throw spoilt(entry, "it has " + content.length + " bytes of content and says " + facts.path("length"));
        }
        if (crc(content, 0, content.length) != facts.path("crc32c").longValue()) {
            throw spoilt(entry, "the checksum of its content is wrong");
        }
        return new Node(kind, facts, content);
    }

    private static IOException spoilt(Entry entry, String reason) {
        return new IOException("the value of key '" + entry.key() + "' at version " + entry.version() + " is no file: " + reason);
    }

    public byte[] encode() {
        try {
            byte[] json = MAPPER.writeValueAsBytes(facts);
            ByteBuffer value = ByteBuffer.allocate(HEAD_BYTES + json.length + (content == null ? 0 : content.length));
            value.put(FORMAT).put(kind.code).putInt(json.length).put(json);
            if (content != null) {
                value.put(content);
            }
            return value.array();
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    public boolean isDirectory() {
        return kind == Kind.DIRECTORY;
    }

    public boolean isBlob() {
        return kind == Kind.BLOB;
    }

    public long mtimeMs() {
        return facts.path("mtime").longValue();
    }

    /** Bytes of the content; 0 for a directory. */
    public long length() {
        return facts.path("length").longValue();
    }

    /** Of the whole content, unsigned. */
    public long crc() {
        return facts.path("crc32c").longValue();
    }

    /** Unique for each file that was ever written; empty where another program wrote none. */
    public String id() {
        return facts.path("id").asText();
    }

    /** The content of an inline file. */
    public byte[] content() {
        return content;
    }

    /** Of a file whose content is a blob in a file system. An IOException where a later release put the blob elsewhere. */
    public Blob blob() throws IOException {
        JsonNode blob = facts.path("blob");
        if (!blob.path("uri").isTextual() || blob.path("chunk_bytes").intValue() < 1) {
            throw new IOException("this release of raftlake does not know where the blob " + blob + " is");
        }
        List<Long> crcs = MAPPER.convertValue(blob.path("chunk_crc32c"), new TypeReference<List<Long>>() {});
        return new Blob(blob.path("uri").textValue(), blob.path("chunk_bytes").intValue(), crcs);
    }
}
