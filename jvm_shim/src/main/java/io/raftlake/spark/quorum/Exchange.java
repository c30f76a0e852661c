package io.raftlake.spark.quorum;

import java.io.IOException;
import java.net.ConnectException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.http.Header;
import org.apache.http.client.config.RequestConfig;
import org.apache.http.client.methods.CloseableHttpResponse;
import org.apache.http.client.methods.HttpGet;
import org.apache.http.client.methods.HttpPost;
import org.apache.http.client.methods.HttpRequestBase;
import org.apache.http.client.protocol.HttpClientContext;
import org.apache.http.config.RegistryBuilder;
import org.apache.http.conn.socket.ConnectionSocketFactory;
import org.apache.http.conn.socket.PlainConnectionSocketFactory;
import org.apache.http.conn.ssl.SSLConnectionSocketFactory;
import org.apache.http.entity.ByteArrayEntity;
import org.apache.http.entity.ContentType;
import org.apache.http.impl.client.CloseableHttpClient;
import org.apache.http.impl.client.HttpClients;
import org.apache.http.impl.conn.DefaultManagedHttpClientConnection;
import org.apache.http.impl.conn.PoolingHttpClientConnectionManager;
import org.apache.http.protocol.HttpContext;
import org.apache.http.ssl.SSLContexts;
import org.apache.http.util.EntityUtils;

/**
 * One request and its answer, on the thread that asks, with the Apache HttpClient that Spark ships. The client of Java 17 has a
 * thread of its own for what comes in: a commit took 0.4 ms longer with it, and four times the processor time.
 *
 * <p>Nothing is sent twice, and no redirect is followed. All threads of a JVM share one pool of connections.
 */
final class Exchange {
    /** Nothing of the request was sent. */
    static final class Unreachable extends IOException {
        private static final long serialVersionUID = 1;

        Unreachable(String told, Throwable cause) {
            super(told, cause);
        }
    }

    private static final int CONNECT_MS = 3_000;
    private static final int CONNECTIONS_MAX = 10_000;
    private static final int BUFFER_BYTES = 8 << 10;

    private static final CloseableHttpClient CLIENT = client();

    private Exchange() {}

    private static CloseableHttpClient client() {
        PoolingHttpClientConnectionManager pool = new PoolingHttpClientConnectionManager(
                RegistryBuilder.<ConnectionSocketFactory>create()
                        .register("http", new Plain())
                        .register("https", new Tls())
                        .build(),
                (route, config) -> new Kept(route.toString()));
        pool.setMaxTotal(CONNECTIONS_MAX);
        pool.setDefaultMaxPerRoute(CONNECTIONS_MAX);
        // Apache looks at no connection that was used in this millisecond, and takes 0 for never.
        pool.setValidateAfterInactivity(1);
        return HttpClients.custom()
                .setConnectionManager(pool)
                .setUserAgent("raftlake-jvm")
                .disableAutomaticRetries()
                .disableRedirectHandling()
                .disableCookieManagement()
                .disableAuthCaching()
                .disableConnectionState()
                .disableContentCompression()
                .build();
    }

    /**
     * The answer to a GET, or with a body to a POST of JSON. {@link Unreachable} where nothing was sent; another IOException
     * where no answer came, within so many ms of silence; InterruptedIOException for a thread that was interrupted.
     */
    static Answer ask(String uri, byte[] body, long silenceMs) throws IOException {
        HttpRequestBase request = request(uri, body);
        int waitMs = (int) Math.max(1, Math.min(Integer.MAX_VALUE, silenceMs));
        request.setConfig(RequestConfig.custom()
                .setConnectTimeout(Math.min(CONNECT_MS, waitMs))
                .setConnectionRequestTimeout(waitMs)
                .setSocketTimeout(waitMs)
                // Keys are sent as they are escaped.
                .setNormalizeUri(false)
                .build());
        HttpClientContext context = HttpClientContext.create();
        try (CloseableHttpResponse answer = CLIENT.execute(request, context)) {
            Map<String, String> headers = new TreeMap<>();
            for (Header header : answer.getAllHeaders()) {
                headers.putIfAbsent(header.getName().toLowerCase(Locale.ROOT), header.getValue());
            }
            byte[] told = answer.getEntity() == null ? new byte[0] : EntityUtils.toByteArray(answer.getEntity());
            return new Answer(uri, answer.getStatusLine().getStatusCode(), headers, told);
        } catch (IOException broken) {
            if (Thread.currentThread().isInterrupted()) {
                throw Http.interrupted("in " + request.getMethod() + " " + uri);
            }
            if (context.getAttribute(HttpClientContext.HTTP_REQ_SENT) == null) {
                // Apache's own text of a refused connection names the node, which the caller does too.
                boolean isRefused = broken instanceof ConnectException && broken.getCause() != null;
                throw new Unreachable(Http.reason(isRefused ? broken.getCause() : broken), broken);
            }
            throw broken;
        }
    }

    private static HttpRequestBase request(String uri, byte[] body) {
        if (body == null) {
            return new HttpGet(uri);
        }
        HttpPost post = new HttpPost(uri);
        post.setEntity(new ByteArrayEntity(body, ContentType.APPLICATION_JSON));
        return post;
    }

    /** Threads that wait for such a socket can be interrupted, as Spark does with those of a query that it stops. */
    private static Socket socket() throws IOException {
        return SocketChannel.open().socket();
    }

    private static final class Plain extends PlainConnectionSocketFactory {
        @Override
        public Socket createSocket(HttpContext context) throws IOException {
            return socket();
        }
    }

    private static final class Tls extends SSLConnectionSocketFactory {
        Tls() {
            super(SSLContexts.createDefault());
        }

        @Override
        public Socket createSocket(HttpContext context) throws IOException {
            return socket();
        }
    }

    /** A connection that knows without a wait whether its node has closed it. Apache's look takes a millisecond. */
    private static final class Kept extends DefaultManagedHttpClientConnection {
        Kept(String name) {
            super(name, BUFFER_BYTES);
        }

        @Override
        public boolean isStale() {
            Socket socket = getSocket();
            SocketChannel channel = socket == null ? null : socket.getChannel();
            if (channel == null) {
                return super.isStale();
            }
            try {
                channel.configureBlocking(false);
                boolean isQuiet = channel.read(ByteBuffer.allocate(1)) == 0;
                channel.configureBlocking(true);
                return !isQuiet;
            } catch (IOException broken) {
                return true;
            }
        }
    }
}
