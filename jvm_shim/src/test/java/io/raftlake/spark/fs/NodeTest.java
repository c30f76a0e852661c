package io.raftlake.spark.fs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.quorum.Entry;
import io.raftlake.spark.quorum.Keys;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class NodeTest {
    private static Node decode(byte[] value) throws IOException {
        return Node.decode(new Entry("/fs/p/f", 7, value));
    }

    private static byte[] value(char kind, String json, String content) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.write(1);
        bytes.write(kind);
        bytes.writeBytes(new byte[] {0, 0, (byte) (json.length() >> 8), (byte) json.length()});
        bytes.writeBytes(Keys.utf8(json + content));
        return bytes.toByteArray();
    }

    @Test
    void theBytesOfAnInlineFile() throws IOException {
        // The checksum of "123456789" is the check value of CRC-32C.
        Node file = decode(value('I', "{\"mtime\":5,\"length\":9,\"crc32c\":3808858755,\"id\":\"x\",\"later\":1}", "123456789"));
        assertEquals(5, file.mtimeMs());
        assertEquals(9, file.length());
        assertEquals(0xE3069283L, file.crc());
        assertArrayEquals(Keys.utf8("123456789"), file.content());
    }

    @Test
    void eachKindComesBack() throws IOException {
        assertTrue(decode(Node.directory(3).encode()).isDirectory());
        Node inline = decode(Node.inline(4, new byte[] {1, 2}).encode());
        assertArrayEquals(new byte[] {1, 2}, inline.content());
        Node.Blob place = new Node.Blob("s3://b/p/x", 512, List.of(1L, 0xFFFFFFFFL));
        Node blob = decode(Node.blob(5, "x", 600, 9, place).encode());
        assertTrue(blob.isBlob());
        assertEquals(place, blob.blob());
        assertEquals(600, blob.length());
    }

    @Test
    void twoFilesWithTheSameContentHaveIdsOfTheirOwn() {
        assertNotEquals(Node.inline(4, new byte[0]).id(), Node.inline(4, new byte[0]).id());
    }

    @Test
    void whatIsSpoiltNamesTheKey() {
        byte[] wrongFormat = value('D', "{\"mtime\":1}", "");
        wrongFormat[0] = 2;
        List<byte[]> spoilt = List.of(
                new byte[0],
                wrongFormat,
                value('X', "{\"mtime\":1}", ""),
                value('D', "{}", ""),
                value('D', "{\"mtime\"", ""),
                value('I', "{\"mtime\":1}", ""),
                value('B', "{\"mtime\":1,\"length\":1,\"crc32c\":1}", ""),
                value('I', "{\"mtime\":1,\"length\":3,\"crc32c\":1}", "ab"),
                value('I', "{\"mtime\":1,\"length\":9,\"crc32c\":3808858755}", "123456780"));
        for (byte[] value : spoilt) {
            String told = assertThrows(IOException.class, () -> decode(value)).getMessage();
            assertTrue(told.contains("'/fs/p/f' at version 7"), told);
        }
    }

    @Test
    void aBlobOfALaterReleaseIsNotGuessed() throws IOException {
        Node node = decode(value('B', "{\"mtime\":1,\"length\":1,\"crc32c\":1,\"blob\":{\"topic\":\"__fs\"}}", ""));
        assertThrows(IOException.class, node::blob);
    }
}
