package lockkeeper.fence;

import java.io.IOException;
import java.io.UnsupportedEncodingException;
import java.net.URLEncoder;
import java.util.Collections;
import java.util.Map;

/**
 * A store that speaks S3's API over HTTP, without a signature: the Http signs, or the URL is of a server
 * that needs none.
 */
public final class HttpStore implements ObjectStore {
    private final String url;
    private final Http http;

    /** A store in the bucket with this URL. */
    public HttpStore(String url, Http http) {
        this.url = url.replaceAll("/$", "");
        this.http = http;
    }

    @Override
    public Found get(String key) throws IOException {
        Http.Answer a = http.send("GET", address(key), Collections.emptyMap(), null);
        if (a.status == 404) {
            return null;
        }
        if (a.status != 200) {
            throw new IOException("get " + key + ": status " + a.status);
        }
        return new Found(a.body, a.etag);
    }

    @Override
    public boolean put(String key, byte[] body, String etag) throws IOException {
        Map<String, String> header = etag == null ? Collections.singletonMap("If-None-Match", "*")
                : Collections.singletonMap("If-Match", etag);
        int status = http.send("PUT", address(key), header, body).status;
        if (status == 409 || status == 412 || status == 404 && etag != null) {
            return false;
        }
        if (status != 200 && status != 201 && status != 204) {
            throw new IOException("put " + key + ": status " + status);
        }
        return true;
    }

    @Override
    public void delete(String key) throws IOException {
        int status = http.send("DELETE", address(key), Collections.emptyMap(), null).status;
        if (status / 100 != 2 && status != 404) {
            throw new IOException("delete " + key + ": status " + status);
        }
    }

    private String address(String key) throws UnsupportedEncodingException {
        return url + "/" + URLEncoder.encode(key, "UTF-8").replace("+", "%20").replace("%2F", "/");
    }
}
