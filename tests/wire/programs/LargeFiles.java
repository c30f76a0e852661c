import java.net.URI;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Large files at raftlake://large, kept in the quorum: LargeFiles write|delete|read BOOTSTRAP HTTP NAME TIMES. The content
 * depends on name and time. `write` replaces the file so many times, and `read` fails unless the last content is there.
 */
public class LargeFiles {
    static final int BYTES = 3_000_000;

    static byte[] content(String name, int time) {
        byte[] content = new byte[BYTES];
        new Random(name.hashCode() + time).nextBytes(content);
        return content;
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set("raftlake.bootstrap.servers", args[1]);
        conf.set("raftlake.http.servers", args[2]);
        conf.set("fs.raftlake.impl", "io.raftlake.spark.RaftlakeFileSystem");
        Path file = new Path("raftlake://large/" + args[3]);
        int times = Integer.parseInt(args[4]);
        try (FileSystem files = FileSystem.newInstance(URI.create("raftlake://large/"), conf)) {
            switch (args[0]) {
                case "write" -> {
                    for (int time = 1; time <= times; time++) {
                        try (FSDataOutputStream out = files.create(file, true)) {
                            out.write(content(args[3], time));
                        }
                    }
                }
                case "delete" -> files.delete(file, false);
                default -> {
                    try (FSDataInputStream in = files.open(file)) {
                        if (!Arrays.equals(content(args[3], times), in.readAllBytes())) {
                            throw new IllegalStateException(file + " has another content");
                        }
                    }
                }
            }
        }
    }
}
