package io.raftlake.spark.checkpoint;

import static io.raftlake.spark.kit.Files.bytes;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** Which content is kept, and for how long. */
class WrittenFilesTest {
    private final WrittenFiles written = new WrittenFiles();

    private static Path file(int number) {
        return new Path("raftlake://p/q/sources/0/" + number);
    }

    private void write(int number, int size) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (OutputStream recording = written.recording(file(number), out)) {
            recording.write(bytes(size), 0, size / 2);
            recording.write(bytes(size)[size / 2]);
            recording.write(bytes(size), size / 2 + 1, size - size / 2 - 1);
        }
        assertArrayEquals(bytes(size), out.toByteArray());
    }

    @Test
    void theContentIsKeptAsItWasWritten() throws IOException {
        write(1, 100);
        assertArrayEquals(bytes(100), written.content(file(1)).orElseThrow());
        assertFalse(written.content(file(2)).isPresent());
        write(1, 50);
        assertArrayEquals(bytes(50), written.content(file(1)).orElseThrow());
    }

    @Test
    void nothingIsKeptBeforeTheFileIsClosed() throws IOException {
        OutputStream recording = written.recording(file(1), new ByteArrayOutputStream());
        recording.write(bytes(10));
        assertFalse(written.content(file(1)).isPresent());
        recording.close();
        assertTrue(written.content(file(1)).isPresent());
    }

    /** Also where it is closed once more, as a try block does it. */
    @Test
    void aFileThatCouldNotBeClosedIsNotKept() throws IOException {
        int[] calls = {0};
        OutputStream refused = new ByteArrayOutputStream() {
            @Override
            public void close() throws IOException {
                if (calls[0]++ == 0) {
                    throw new IOException("refused");
                }
            }
        };
        OutputStream recording = written.recording(file(1), refused);
        recording.write(bytes(10));
        assertThrows(IOException.class, recording::close);
        recording.close();
        assertFalse(written.content(file(1)).isPresent());
    }

    @Test
    void largeFilesAreNotKept() throws IOException {
        write(1, WrittenFiles.FILE_BYTES_MAX);
        write(2, WrittenFiles.FILE_BYTES_MAX + 1);
        assertTrue(written.content(file(1)).isPresent());
        assertFalse(written.content(file(2)).isPresent());
    }

    @Test
    void theNewestFilesAreKept() throws IOException {
        for (int number = 0; number <= WrittenFiles.FILES_MAX; number++) {
            write(number, 10);
        }
        assertFalse(written.content(file(0)).isPresent());
        assertTrue(written.content(file(1)).isPresent());
        assertTrue(written.content(file(WrittenFiles.FILES_MAX)).isPresent());
    }

    @Test
    void whatIsDeletedIsForgotten() throws IOException {
        write(1, 10);
        write(10, 10);
        written.forget(file(1));
        assertFalse(written.content(file(1)).isPresent());
        assertTrue(written.content(file(10)).isPresent());
        written.forget(new Path("raftlake://p/q/sources"));
        assertFalse(written.content(file(10)).isPresent());
    }
}
