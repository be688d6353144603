package lockkeeper.fence;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Remembers in a key of etcd, through the JSON gateway of every etcd server. The check and the writes
 * are one transaction: the one that Go's fence.Etcd describes.
 */
public final class EtcdFence {
    private static final Pattern VALUE = Pattern.compile("\"value\":\\s*\"([A-Za-z0-9+/=]*)\"");
    private static final Pattern SUCCEEDED = Pattern.compile("\"succeeded\":\\s*true");

    private final String url;
    private final Http http;
    private final String prefix;

    /** A fence in the server with this URL, as http://127.0.0.1:2379, with the prefix "fence/". */
    public EtcdFence(String url) {
        this(url, Http.PLAIN, "fence/");
    }

    /** A fence whose requests http sends, with that prefix of its keys. */
    public EtcdFence(String url, Http http, String prefix) {
        this.url = url.replaceAll("/$", "");
        this.http = http;
        this.prefix = prefix;
    }

    /** Accepts a token or refuses it. A holder that reads before it writes begins with it. */
    public void check(String resource, long token) throws IOException {
        put(resource, token, Collections.emptyMap());
    }

    /**
     * Puts keys if the token is accepted. With an exception other than StaleException it may have been
     * done, or may be done yet.
     */
    public void put(String resource, long token, Map<String, String> values) throws IOException {
        Names.check(resource, token, 0);
        String key = encode(prefix + resource);
        StringBuilder accept = new StringBuilder("[").append(put(key, encode(String.format("%019d", token))));
        values.forEach((k, v) -> accept.append(',').append(put(encode(k), encode(v))));
        accept.append(']');
        String above = Long.toUnsignedString(token + 1);
        String limit = "0000000000000000000".substring(above.length()) + above;
        String again = "{\"compare\":[{\"key\":\"" + key + "\",\"target\":\"VALUE\",\"result\":\"LESS\",\"value\":\""
                + encode(limit) + "\"},{\"key\":\"" + key + "\",\"target\":\"VALUE\",\"result\":\"GREATER\",\"value\":\""
                + encode("0000000000000000000") + "\"}],\"success\":" + accept
                + ",\"failure\":[{\"requestRange\":{\"key\":\"" + key + "\"}}]}";
        String first = "{\"compare\":[{\"key\":\"" + key + "\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"createRevision\":\"0\"}],"
                + "\"success\":" + accept + ",\"failure\":[{\"requestTxn\":" + again + "}]}";
        Http.Answer answer = http.send("POST", url + "/v3/kv/txn", Collections.singletonMap("Content-Type", "application/json"),
                first.getBytes(StandardCharsets.UTF_8));
        String text = new String(answer.body, StandardCharsets.UTF_8);
        if (answer.status != 200) {
            throw new IOException("etcd answers " + answer.status + ": " + text);
        }
        // All strings of the answer that come from keys and values are base64.
        if (SUCCEEDED.matcher(text).find()) {
            return;
        }
        if (!text.contains("response_range")) {
            throw new IOException("etcd: an answer that the transaction does not give: " + text);
        }
        Matcher value = VALUE.matcher(text);
        byte[] newest = value.find() ? Base64.getDecoder().decode(value.group(1)) : new byte[0];
        throw Names.refusal(resource, token, new String(newest, StandardCharsets.UTF_8), prefix + resource);
    }

    private static String put(String key, String value) {
        return "{\"requestPut\":{\"key\":\"" + key + "\",\"value\":\"" + value + "\"}}";
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
