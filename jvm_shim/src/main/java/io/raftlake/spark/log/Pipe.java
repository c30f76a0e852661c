package io.raftlake.spark.log;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/**
 * A connection to one node with many requests on their way. It never blocks: its owner selects, then calls {@link #work}. Answers
 * come in the order of the requests. After an exception it is of no use, and the owner closes it. One owner after another may use
 * it, each with a selector of its own.
 */
final class Pipe implements Idle.Kept {
    /** Who hears of answers, in the order of the requests. */
    interface Listener {
        /** {@code answer}: what stands behind the head, which is the listener's for the time of the call. */
        void answered(Object request, ByteBuffer answer) throws IOException;
    }

    private static final int SMALLEST_FRAME_BYTES = 5;
    private static final int WRITE_BYTES = 128 << 10;

    private record Sent(int correlation, Object request) {}

    private final InetSocketAddress address;
    private final SocketChannel channel;
    private SelectionKey key;
    private final Deque<ByteBuffer> outgoing = new ArrayDeque<>();
    private final Deque<Sent> sent = new ArrayDeque<>();
    private final ByteBuffer size = ByteBuffer.allocate(4);
    private ByteBuffer frame;
    private int correlation;
    private long heardAtNs;

    private Pipe(InetSocketAddress address, SocketChannel channel) {
        this.address = address;
        this.channel = channel;
        this.heardAtNs = System.nanoTime();
    }

    /** One that connects, or is about to. */
    static Pipe to(InetSocketAddress address) throws IOException {
        SocketChannel channel = SocketChannel.open();
        try {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            InetSocketAddress resolved = new InetSocketAddress(address.getHostString(), address.getPort());
            if (resolved.isUnresolved()) {
                throw new IOException("the name cannot be looked up");
            }
            channel.connect(resolved);
            return new Pipe(address, channel);
        } catch (IOException unreachable) {
            channel.close();
            throw unreachable;
        }
    }

    /** Its owner selects with this from now on. */
    void register(Selector selector) throws IOException {
        key = channel.register(selector, channel.isConnected() ? SelectionKey.OP_READ : SelectionKey.OP_CONNECT);
    }

    @Override
    public InetSocketAddress address() {
        return address;
    }

    @Override
    public SocketChannel channel() {
        return channel;
    }

    @Override
    public long usedAtNs() {
        return heardAtNs;
    }

    /** Whether all that was sent is answered, so that another owner may have it. */
    boolean isIdle() {
        return channel.isConnected() && sent.isEmpty() && outgoing.isEmpty() && frame == null && size.position() == 0;
    }

    /** {@code body} is sent by {@link #work}, and must not be changed until the answer is there. */
    void send(Api api, Object request, ByteBuffer[] body) {
        int bytes = 0;
        for (ByteBuffer part : body) {
            bytes += part.remaining();
        }
        outgoing.add(Connection.head(api, ++correlation, bytes));
        for (ByteBuffer part : body) {
            outgoing.add(part);
        }
        if (sent.isEmpty()) {
            heardAtNs = System.nanoTime();
        }
        sent.add(new Sent(correlation, request));
    }

    /** For how long answers are missing while requests are on their way, in ns; 0 where none is. */
    long silentNs() {
        return sent.isEmpty() ? 0 : System.nanoTime() - heardAtNs;
    }

    /** Does what can be done now. IOException where the connection is of no use any more. */
    void work(Listener listener) throws IOException {
        if (!channel.isConnected() && !channel.finishConnect()) {
            return;
        }
        read(listener);
        write();
        key.interestOps(outgoing.isEmpty() ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
    }

    private void write() throws IOException {
        while (!outgoing.isEmpty()) {
            if (writeSome() > 0) {
                return;
            }
        }
    }

    /** Writes the next bytes, some at a time, for the channel copies all that it is offered. How many it did not take. */
    private long writeSome() throws IOException {
        List<ByteBuffer> some = new ArrayList<>();
        int left = WRITE_BYTES;
        for (ByteBuffer each : outgoing) {
            if (left == 0) {
                break;
            }
            some.add(each.slice(each.position(), Math.min(left, each.remaining())));
            left -= some.get(some.size() - 1).remaining();
        }
        long count = channel.write(some.toArray(ByteBuffer[]::new));
        long over = WRITE_BYTES - left - count;
        while (!outgoing.isEmpty() && (count > 0 || !outgoing.getFirst().hasRemaining())) {
            ByteBuffer first = outgoing.getFirst();
            int taken = (int) Math.min(count, first.remaining());
            first.position(first.position() + taken);
            count -= taken;
            if (!first.hasRemaining()) {
                outgoing.removeFirst();
            }
        }
        return over;
    }

    private void read(Listener listener) throws IOException {
        while (true) {
            if (frame == null) {
                if (!fill(size)) {
                    return;
                }
                int bytes = size.flip().getInt();
                if (bytes < SMALLEST_FRAME_BYTES || bytes > Connection.FRAME_BYTES_MAX) {
                    throw Connection.notOurs(bytes);
                }
                size.clear();
                frame = ByteBuffer.allocate(bytes);
            }
            if (!fill(frame)) {
                return;
            }
            ByteBuffer answer = frame.flip();
            frame = null;
            heardAtNs = System.nanoTime();
            hear(answer, listener);
        }
    }

    private void hear(ByteBuffer answer, Listener listener) throws IOException {
        Sent first = sent.pollFirst();
        int answered = answer.getInt();
        if (first == null || answered != first.correlation()) {
            throw new IOException("it answered request " + answered + ", which is not the next one");
        }
        In.answer(answer, "the head of an answer", in -> {
            in.skipTags();
            return answer;
        });
        listener.answered(first.request(), answer);
    }

    private boolean fill(ByteBuffer into) throws IOException {
        while (into.hasRemaining()) {
            int count = channel.read(into);
            if (count < 0) {
                throw new IOException("the node closed the connection");
            }
            if (count == 0) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void close() {
        try {
            channel.close();
        } catch (IOException ignored) {
            // Nobody uses it any more.
        }
    }
}
