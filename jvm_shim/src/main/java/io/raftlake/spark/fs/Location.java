package io.raftlake.spark.fs;

import io.raftlake.spark.quorum.KeySpace;
import io.raftlake.spark.quorum.Keys;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIOException;

/**
 * A place in a pipeline's tree, and its key: {@code /fs/<pipeline>/<component>/<component>}; the root is
 * {@code /fs/<pipeline>}, and has no key.
 *
 * <p>Components are written as they are, except that a percent sign and control characters (U+0000 to U+001F, U+007F) are
 * %XX. Empty components, "." and ".." do not exist.
 */
public final class Location {
    /** What all keys of files begin with. */
    public static final String ROOT = "/fs/";

    /** What the keys of state begin with; pipeline and path follow, as in keys of files. They move with their directory. */
    public static final String STATE_ROOT = "/fs-state/";

    private static final Pattern PIPELINE = Pattern.compile("[A-Za-z0-9._-]{1,64}");
    private static final char[] HEX = "0123456789ABCDEF".toCharArray();

    private final String pipeline;
    private final String key;

    private Location(String pipeline, String key) {
        this.pipeline = pipeline;
        this.key = key;
    }

    /**
     * {@code path} begins with a slash, as Hadoop's paths do. Throws {@link PathIOException} for a name that no key can
     * have; the text names the path.
     */
    public static Location of(String pipeline, String path) throws IOException {
        StringBuilder key = new StringBuilder(ROOT).append(requirePipeline(pipeline));
        for (String component : path.split("/")) {
            if (component.equals(".") || component.equals("..")) {
                throw new PathIOException(path, "'" + component + "' is no name of a file, and nothing lies outside the root");
            }
            if (!component.isEmpty()) {
                key.append('/').append(escape(path, component));
            }
        }
        int bytes = Keys.utf8(key.toString()).length;
        if (bytes > KeySpace.KEY_BYTES_MAX) {
            throw new PathIOException(path, "too long: its key would have " + bytes + " bytes, allowed are "
                    + KeySpace.KEY_BYTES_MAX + " ('/fs/', the pipeline '" + pipeline + "' and the path)");
        }
        return new Location(pipeline, key.toString());
    }

    /** The place whose {@link #stateKey} this is. */
    public static Location ofStateKey(String stateKey) {
        String rest = stateKey.substring(STATE_ROOT.length());
        int slash = rest.indexOf('/');
        return new Location(slash < 0 ? rest : rest.substring(0, slash), ROOT + rest);
    }

    /** The name of a pipeline; an IOException says what is allowed. */
    public static String requirePipeline(String pipeline) throws IOException {
        if (pipeline == null || !PIPELINE.matcher(pipeline).matches() || pipeline.matches("\\.\\.?")) {
            throw new IOException("raftlake://" + (pipeline == null ? "" : pipeline) + ": the part behind raftlake:// names the "
                    + "pipeline, as in raftlake://orders/main: 1 to 64 of A-Z a-z 0-9 . _ -");
        }
        return pipeline;
    }

    private static String escape(String path, String component) throws IOException {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(component)) {
            throw new PathIOException(path, "the name is not valid Unicode text");
        }
        StringBuilder escaped = new StringBuilder(component.length());
        for (char c : component.toCharArray()) {
            if (c == '%' || c < ' ' || c == 0x7F) {
                escaped.append('%').append(HEX[c >> 4]).append(HEX[c & 15]);
            } else {
                escaped.append(c);
            }
        }
        return escaped.toString();
    }

    /** The name in a key, as a component of a path. A percent sign that begins no %XX stands for itself. */
    private static String unescape(String name) {
        if (name.indexOf('%') < 0) {
            return name;
        }
        byte[] bytes = Keys.utf8(name);
        ByteArrayOutputStream plain = new ByteArrayOutputStream(bytes.length);
        for (int at = 0; at < bytes.length; at++) {
            int high = bytes[at] == '%' && at + 2 < bytes.length ? Character.digit(bytes[at + 1], 16) : -1;
            int low = high < 0 ? -1 : Character.digit(bytes[at + 2], 16);
            plain.write(low < 0 ? bytes[at] : high * 16 + low);
            at += low < 0 ? 0 : 2;
        }
        return plain.toString(StandardCharsets.UTF_8);
    }

    public String pipeline() {
        return pipeline;
    }

    public String key() {
        return key;
    }

    /** The key of the state of a checkpoint that is here. */
    public String stateKey() {
        return STATE_ROOT + key.substring(ROOT.length());
    }

    public Path toHadoop() {
        return new Path("raftlake", pipeline, path());
    }

    /** What the keys of all that lies below begin with. */
    public String prefix() {
        return key + "/";
    }

    public boolean isRoot() {
        return key.length() == ROOT.length() + pipeline.length();
    }

    /** The directory around it. The root has none. */
    public Location parent() {
        if (isRoot()) {
            throw new IllegalStateException(key + " is the root");
        }
        return new Location(pipeline, key.substring(0, key.lastIndexOf('/')));
    }

    /** The last component, as in a path; empty for the root. */
    public String name() {
        return isRoot() ? "" : unescape(key.substring(key.lastIndexOf('/') + 1));
    }

    /** A child by its name in a path. */
    public Location child(String name) throws IOException {
        return of(pipeline, path() + "/" + name);
    }

    /** The place of a key that a list gave. */
    Location at(String listedKey) {
        return new Location(pipeline, listedKey);
    }

    public boolean isBelow(Location other) {
        return key.startsWith(other.prefix());
    }

    /** As a path: it begins with a slash. */
    public String path() {
        return isRoot() ? "/" : unescape(key.substring(ROOT.length() + pipeline.length()));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Location that && key.equals(that.key);
    }

    @Override
    public int hashCode() {
        return key.hashCode();
    }

    @Override
    public String toString() {
        return "raftlake://" + pipeline + path();
    }
}
