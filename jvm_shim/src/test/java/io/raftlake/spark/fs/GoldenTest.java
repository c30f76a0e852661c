package io.raftlake.spark.fs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.Keys;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The bytes of golden.json, which tests/unit/checkpoints/test_checkpoints_golden.py writes with Python's classes. */
@Tag("memory")
class GoldenTest {
    private JsonNode golden;

    @BeforeEach
    void read() throws IOException {
        try (InputStream in = GoldenTest.class.getResourceAsStream("golden.json")) {
            golden = new ObjectMapper().readTree(in);
        }
    }

    private static byte[] value(JsonNode of) {
        return HexFormat.of().parseHex(of.get("value").textValue());
    }

    /** What a node writes, with the id of the golden one. */
    private static byte[] withId(Node node, JsonNode of) {
        String text = new String(node.encode(), StandardCharsets.ISO_8859_1);
        return text.replace(node.id(), of.get("id").textValue()).getBytes(StandardCharsets.ISO_8859_1);
    }

    @Test
    void keysOfPlaces() throws IOException {
        for (JsonNode place : golden.get("locations")) {
            Location at = Location.of(place.get("pipeline").textValue(), place.get("path").textValue());
            assertEquals(place.get("key").textValue(), at.key());
        }
    }

    @Test
    void directoriesAndInlineFiles() throws IOException {
        JsonNode directory = golden.get("directory");
        assertArrayEquals(value(directory), withId(Node.directory(directory.get("mtime").longValue()), directory));
        JsonNode inline = golden.get("inline");
        byte[] content = Keys.utf8(inline.get("content").textValue());
        assertArrayEquals(value(inline), withId(Node.inline(inline.get("mtime").longValue(), content), inline));
        assertArrayEquals(content, Node.decode(new Entry("/fs/p/f", 1, value(inline))).content());
    }

    @Test
    void blobs() throws IOException {
        JsonNode blob = golden.get("blob");
        byte[] content = new byte[blob.get("length").intValue()];
        for (int at = 0; at < content.length; at++) {
            content[at] = (byte) (at % blob.get("step").intValue());
        }
        List<Long> chunks = new ArrayList<>();
        for (int at = 0; at < content.length; at += FileWriter.CHUNK_BYTES) {
            chunks.add(Node.crc(content, at, Math.min(FileWriter.CHUNK_BYTES, content.length - at)));
        }
        CRC32C whole = new CRC32C();
        whole.update(content);
        Node.Blob place = new Node.Blob(blob.get("uri").textValue(), FileWriter.CHUNK_BYTES, chunks);
        Node node = Node.blob(
                blob.get("mtime").longValue(), blob.get("id").textValue(), content.length, whole.getValue(), place);
        assertArrayEquals(value(blob), node.encode());
        assertEquals(place, Node.decode(new Entry("/fs/p/f", 1, value(blob))).blob());
    }

    @Test
    void namesOfBlobsInTheQuorum() {
        for (JsonNode name : golden.get("names")) {
            BlobUri uri = BlobUri.parse(name.get("uri").textValue());
            assertEquals(new BlobUri(name.get("topic").textValue(), name.get("partition").intValue(),
                    name.get("first").longValue(), name.get("last").longValue(), name.get("chunks").intValue(),
                    name.get("chunk_bytes").intValue(), name.get("id").textValue()), uri);
            assertEquals(name.get("uri").textValue(), uri.toString());
        }
    }

    @Test
    void intents() throws IOException {
        JsonNode intent = golden.get("intent");
        byte[] value = Keys.utf8(intent.get("value").textValue());
        Blobs.Stated stated = Blobs.stated(new Entry("/fs-blobs/p/x", 1, value));
        assertEquals(intent.get("mtime").longValue(), stated.mtimeMs());
        assertEquals(intent.get("where").textValue(), stated.uri());
    }
}
