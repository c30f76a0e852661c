package io.raftlake.spark.fs;

/**
 * What stands at a location: the node and its version, or nothing ({@code node} null, version 0). The root of a pipeline is a
 * directory without a key, and has version 0 too. {@code value} is the key's value as it was read.
 */
record Found(Location location, Node node, long version, byte[] value) {
    boolean exists() {
        return node != null;
    }

    boolean isFile() {
        return node != null && !node.isDirectory();
    }

    boolean isDirectory() {
        return node != null && node.isDirectory();
    }
}
