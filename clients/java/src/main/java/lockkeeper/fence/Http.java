package lockkeeper.fence;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;
import java.util.Map;

/** Sends requests for EtcdFence and HttpStore. One of the caller's signs, say. */
@FunctionalInterface
public interface Http {
    /** An answer of a server. */
    final class Answer {
        /** The status, as 200. */
        public final int status;
        /** The header ETag; null if there is none. */
        public final String etag;
        /** The body; never null. */
        public final byte[] body;

        /** An answer with these. */
        public Answer(int status, String etag, byte[] body) {
            this.status = status;
            this.etag = etag;
            this.body = body;
        }
    }

    /** Sends a request, with null for no body. It must not follow redirections. */
    Answer send(String method, String url, Map<String, String> headers, byte[] body) throws IOException;

    /** Sends with java.net, within 30 s. */
    Http PLAIN = (method, url, headers, body) -> {
        final int patienceMs = 30_000;
        HttpURLConnection c = (HttpURLConnection) new URL(url).openConnection(Proxy.NO_PROXY);
        c.setConnectTimeout(patienceMs);
        c.setReadTimeout(patienceMs);
        c.setInstanceFollowRedirects(false);
        c.setRequestMethod(method);
        headers.forEach(c::setRequestProperty);
        if (body != null) {
            c.setDoOutput(true);
            c.setFixedLengthStreamingMode(body.length); // or java.net sends it twice after an error
            c.getOutputStream().write(body);
        }
        int status = c.getResponseCode();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (InputStream in = status >= 400 ? c.getErrorStream() : c.getInputStream()) {
            byte[] part = new byte[8192];
            for (int n; in != null && (n = in.read(part)) >= 0;) {
                out.write(part, 0, n);
            }
        }
        return new Answer(status, c.getHeaderField("ETag"), out.toByteArray());
    };
}
