package io.raftlake.spark.log;

import com.github.luben.zstd.ZstdInputStreamNoFinalizer;
import com.github.luben.zstd.ZstdOutputStreamNoFinalizer;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import net.jpountz.lz4.LZ4FrameInputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;
import org.xerial.snappy.SnappyInputStream;
import org.xerial.snappy.SnappyOutputStream;

/**
 * The codecs of record batches, in the framings that Kafka has: lz4 as frames of independent blocks, snappy as xerial blocks,
 * gzip and zstd as they come. The libraries are those that Spark ships.
 */
public enum Codec {
    NONE,
    GZIP,
    SNAPPY,
    LZ4,
    ZSTD;

    /** What one batch may decompress to, in bytes. */
    public static final int DECOMPRESSED_BYTES_MAX = 64 << 20;

    private static final int ZSTD_LEVEL = 3;
    private static final int SNAPPY_BLOCK_BYTES = 32 * 1024;
    private static final int PIECE_BYTES = 64 * 1024;

    /** By Kafka's name for it, in any case. IllegalArgumentException where it has none. */
    public static Codec named(String name) {
        return valueOf(name.toUpperCase(Locale.ROOT));
    }

    /** The codec of a batch with these attributes. */
    static Codec of(int attributes) throws IOException {
        int number = attributes & 0x07;
        if (number >= values().length) {
            throw new IOException("compression codec " + number + " does not exist");
        }
        return values()[number];
    }

    byte[] compress(byte[] content, int length) throws IOException {
        ByteArrayOutputStream compressed = new ByteArrayOutputStream(Math.max(64, length / 2));
        try (OutputStream out = compressing(compressed)) {
            out.write(content, 0, length);
        }
        return compressed.toByteArray();
    }

    private OutputStream compressing(OutputStream into) throws IOException {
        return switch (this) {
            case NONE -> into;
            case GZIP -> new GZIPOutputStream(into);
            case SNAPPY -> new SnappyOutputStream(into, SNAPPY_BLOCK_BYTES);
            case LZ4 -> new LZ4FrameOutputStream(into, LZ4FrameOutputStream.BLOCKSIZE.SIZE_64KB,
                    LZ4FrameOutputStream.FLG.Bits.BLOCK_INDEPENDENCE);
            case ZSTD -> new ZstdOutputStreamNoFinalizer(into, ZSTD_LEVEL);
        };
    }

    /** The content; an IOException where it is damaged, or larger than {@code bytesMax}. */
    ByteBuffer decompress(ByteBuffer compressed, int bytesMax) throws IOException {
        if (this == NONE) {
            return compressed;
        }
        byte[] from = new byte[compressed.remaining()];
        compressed.duplicate().get(from);
        byte[] content = new byte[(int) Math.min(bytesMax + 1L, Math.max(PIECE_BYTES, 4L * from.length))];
        int size = 0;
        try (InputStream in = decompressing(new ByteArrayInputStream(from))) {
            while (true) {
                int count = in.read(content, size, content.length - size);
                if (count < 0) {
                    return ByteBuffer.wrap(content, 0, size);
                }
                size += count;
                if (size > bytesMax) {
                    throw new IOException("it holds more than the allowed " + bytesMax + " bytes");
                }
                if (size == content.length) {
                    content = Arrays.copyOf(content, (int) Math.min(bytesMax + 1L, 2L * content.length));
                }
            }
        } catch (IOException | RuntimeException damaged) {
            throw new IOException("its " + this + " payload is damaged: " + Connection.reason(damaged), damaged);
        }
    }

    private InputStream decompressing(InputStream from) throws IOException {
        return switch (this) {
            case NONE -> from;
            case GZIP -> new GZIPInputStream(from);
            case SNAPPY -> new SnappyInputStream(from);
            case LZ4 -> new LZ4FrameInputStream(from);
            case ZSTD -> new ZstdInputStreamNoFinalizer(from);
        };
    }
}
