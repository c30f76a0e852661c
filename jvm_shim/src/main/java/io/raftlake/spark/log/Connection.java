package io.raftlake.spark.log;

import io.raftlake.spark.quorum.Deadline;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * One connection to one node, for one thread at a time: a request, then its answer. It is closed by whatever goes wrong, so
 * that no answer is taken for that of a later request; the correlation id is compared all the same.
 */
final class Connection implements Idle.Kept {
    /** No answer is larger: a first batch is given whole, whatever the bound, and nodes take none above 100 MiB. */
    static final int FRAME_BYTES_MAX = 110 << 20;

    private static final byte[] CLIENT_ID = "raftlake-jvm".getBytes(StandardCharsets.UTF_8);

    private final InetSocketAddress address;
    private final SocketChannel channel;
    private final Selector selector;
    private final SelectionKey key;
    private int correlation;
    private long usedAtNs = System.nanoTime();

    private Connection(InetSocketAddress address, SocketChannel channel, Selector selector) throws IOException {
        this.address = address;
        this.channel = channel;
        this.selector = selector;
        this.key = channel.register(selector, 0);
    }

    /** {@code address} may be unresolved: the name is looked up each time. {@link Lost} where nobody answers there. */
    static Connection open(InetSocketAddress address, long timeoutMs) throws IOException {
        SocketChannel channel = SocketChannel.open();
        Selector selector = null;
        try {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            selector = Selector.open();
            Connection connection = new Connection(address, channel, selector);
            InetSocketAddress resolved = new InetSocketAddress(address.getHostString(), address.getPort());
            if (resolved.isUnresolved()) {
                throw new IOException("the name cannot be looked up");
            }
            Deadline deadline = new Deadline(timeoutMs);
            boolean isOpen = channel.connect(resolved);
            while (!isOpen) {
                connection.await(SelectionKey.OP_CONNECT, deadline, "no connection");
                isOpen = channel.finishConnect();
            }
            return connection;
        } catch (InterruptedIOException interrupted) {
            close(channel, selector);
            throw interrupted;
        } catch (IOException unreachable) {
            close(channel, selector);
            throw new Lost("not reachable: " + reason(unreachable), false, unreachable);
        }
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
        return usedAtNs;
    }

    /**
     * Sends a request and waits for its answer: what stands behind the answer's header. {@link Lost} where none came in time;
     * the connection is closed then.
     */
    ByteBuffer ask(Api api, Out body, long timeoutMs) throws IOException {
        boolean wasSent = false;
        boolean isDone = false;
        Deadline deadline = new Deadline(timeoutMs);
        try {
            ByteBuffer[] request = {head(api, ++correlation, body.size()), body.buffer()};
            while (request[1].hasRemaining()) {
                if (channel.write(request) == 0) {
                    await(SelectionKey.OP_WRITE, deadline, "it took no more bytes");
                }
                wasSent = true;
            }
            ByteBuffer answer = receive(deadline);
            isDone = true;
            usedAtNs = System.nanoTime();
            return answer;
        } catch (InterruptedIOException interrupted) {
            throw interrupted;
        } catch (IOException broken) {
            throw new Lost(api + ": " + reason(broken), wasSent, broken);
        } finally {
            if (!isDone) {
                close();
            }
        }
    }

    /** What stands before a body of so many bytes. */
    static ByteBuffer head(Api api, int correlation, int bodyBytes) {
        ByteBuffer head = ByteBuffer.allocate(4 + 2 + 2 + 4 + 2 + CLIENT_ID.length + 1);
        head.putInt(head.capacity() - 4 + bodyBytes);
        head.putShort(api.key()).putShort(api.version()).putInt(correlation);
        head.putShort((short) CLIENT_ID.length).put(CLIENT_ID).put((byte) 0);
        return head.flip();
    }

    /** Of an answer that cannot be so large: its first four bytes are those of another protocol, or garbage. */
    static IOException notOurs(int size) {
        String begins = new String(ByteBuffer.allocate(4).putInt(size).array(), StandardCharsets.ISO_8859_1);
        boolean isTls = (begins.charAt(0) == 0x15 || begins.charAt(0) == 0x16) && begins.charAt(1) == 3;
        String spoken = begins.equals("HTTP") ? "it speaks HTTP" : isTls ? "it speaks TLS"
                : "it answered with a frame of " + size + " bytes";
        String hint = begins.equals("HTTP")
                ? ": bootstrap servers are the addresses that `listeners` of the nodes names, and not `http.listener`" : "";
        return new IOException(spoken + ", and is no raftlake node's Kafka listener" + hint);
    }

    private ByteBuffer receive(Deadline deadline) throws IOException {
        ByteBuffer size = fill(ByteBuffer.allocate(4), deadline);
        int bytes = size.getInt();
        if (bytes < 5 || bytes > FRAME_BYTES_MAX) {
            throw notOurs(bytes);
        }
        ByteBuffer frame = fill(ByteBuffer.allocate(bytes), deadline);
        int answered = frame.getInt();
        if (answered != correlation) {
            throw new IOException("it answered request " + answered + ", and " + correlation + " was asked");
        }
        return In.answer(frame, "the head of an answer", in -> {
            in.skipTags();
            return frame;
        });
    }

    private ByteBuffer fill(ByteBuffer into, Deadline deadline) throws IOException {
        while (into.hasRemaining()) {
            int count = channel.read(into);
            if (count < 0) {
                throw new IOException("the node closed the connection");
            }
            if (count == 0) {
                await(SelectionKey.OP_READ, deadline, "no answer");
            }
        }
        return into.flip();
    }

    private void await(int ops, Deadline deadline, String otherwise) throws IOException {
        if (deadline.isOver()) {
            throw new IOException(otherwise + " within " + deadline.timeoutMs() + " ms");
        }
        key.interestOps(ops);
        selector.select(Math.max(1, deadline.remainingMs()));
        selector.selectedKeys().clear();
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("interrupted while it waited for " + address);
        }
    }

    static String reason(Exception error) {
        return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    }

    @Override
    public void close() {
        close(channel, selector);
    }

    private static void close(SocketChannel channel, Selector selector) {
        try {
            channel.close();
            if (selector != null) {
                selector.close();
            }
        } catch (IOException ignored) {
            // Nobody uses it any more.
        }
    }
}
