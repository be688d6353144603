package lockkeeper.fence;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Fences objects of a store with conditional writes: S3 and its kin. Any thread may use it.
 *
 * <p>The token is in a sidecar, NAME.fence, which names the data and never has the same content twice:
 * an ETag is the MD5 of the content, and comes again with it. Go's fence.Objects argues.
 */
public final class ObjectsFence {
    /** Makes the new content of an object. */
    @FunctionalInterface
    public interface Change {
        /** Returns it, from the old one; null if there is none. */
        byte[] of(byte[] old) throws IOException;
    }

    private static final int ATTEMPTS = 20;
    private static final Pattern SIDECAR = Pattern.compile(
            "lockkeeper-fence-object 1\ntoken ([0-9]{1,19})\ndata ([^\n]*)\nwrite [^\n]+\n");

    private final ObjectStore store;

    /**
     * A fence in this store, which is first probed with an object of this prefix: one that ignores
     * conditions is an error.
     */
    public ObjectsFence(ObjectStore store, String prefix) throws IOException {
        this.store = store;
        String key = prefix + "fence-probe-" + Names.nonce();
        byte[] body = key.getBytes(StandardCharsets.UTF_8);
        try {
            if (!store.put(key, body, null) || store.put(key, body, null)
                    || store.put(key, body, "\"00000000000000000000000000000000\"")) {
                throw new IOException("the store does not write " + key + " as the condition (If-Match, If-None-Match) says");
            }
        } finally {
            store.delete(key);
        }
    }

    /** The sidecar: a token, the end of the data's key, and the ETag. */
    private static final class Sidecar {
        final long token;
        final String data;
        final String etag;

        Sidecar(long token, String data, String etag) {
            this.token = token;
            this.data = data;
            this.etag = etag;
        }
    }

    private Sidecar read(String name) throws IOException {
        ObjectStore.Found found = store.get(name + ".fence");
        if (found == null) {
            return new Sidecar(0, "", null);
        }
        Matcher m = SIDECAR.matcher(new String(found.body, StandardCharsets.UTF_8));
        try {
            if (m.matches() && found.etag != null && Long.parseLong(m.group(1)) > 0) {
                return new Sidecar(Long.parseLong(m.group(1)), m.group(2), found.etag);
            }
        } catch (NumberFormatException e) {
            // It is said below.
        }
        throw new DamagedException(name + ".fence");
    }

    /** Writes the sidecar in the place of old. False: another write came first. */
    private boolean replace(String name, Sidecar old, long token, String data) throws IOException {
        String text = "lockkeeper-fence-object 1\ntoken " + token + "\ndata " + data + "\nwrite " + Names.nonce() + "\n";
        if (store.put(name + ".fence", text.getBytes(StandardCharsets.UTF_8), old.etag)) {
            return true;
        }
        // Or it was this very write, of which a connection's loss has made two.
        return !data.isEmpty() && read(name).data.equals(data);
    }

    private Sidecar accept(String name, long token) throws IOException {
        Names.check(name, token, 0);
        for (int i = 0; i < ATTEMPTS; i++) {
            Sidecar s = read(name);
            if (!Names.check(name, token, s.token)) {
                return s;
            }
            replace(name, s, token, s.data); // and read it, for its ETag
        }
        throw new IOException(name + ".fence changes all the time");
    }

    /** Accepts a token or refuses it. */
    public void check(String name, long token) throws IOException {
        accept(name, token);
    }

    /**
     * Writes the object if the token is accepted. With an exception other than StaleException it may
     * have been written, or may be written yet, but not after a larger token.
     */
    public void put(String name, long token, byte[] body) throws IOException {
        write(name, token, false, old -> body);
    }

    /**
     * Writes the result of change, which gets the object. If another write was accepted between the two,
     * change is called again.
     */
    public void update(String name, long token, Change change) throws IOException {
        write(name, token, true, change);
    }

    private void write(String name, long token, boolean reads, Change change) throws IOException {
        for (int i = 0; i < ATTEMPTS; i++) {
            Sidecar s = accept(name, token);
            ObjectStore.Found old = reads && !s.data.isEmpty() ? store.get(name + "." + s.data) : null;
            if (reads && !s.data.isEmpty() && old == null) {
                continue; // a newer write has replaced it
            }
            String data = token + "-" + Names.nonce();
            if (!store.put(name + "." + data, change.of(old == null ? null : old.body), null)) {
                throw new IOException(name + "." + data + " is there already");
            }
            boolean done = replace(name, s, token, data); // after an exception the data stay: it may name them
            String unused = done ? s.data : data;
            if (!unused.isEmpty()) {
                try {
                    store.delete(name + "." + unused); // nothing names it, and nothing will
                } catch (IOException e) {
                    // It costs space, and no more.
                }
            }
            if (done) {
                return;
            }
        }
        throw new IOException(name + ".fence changes all the time");
    }

    /** Returns the object; null if there is none. */
    public byte[] get(String name) throws IOException {
        for (int i = 0; i < ATTEMPTS; i++) {
            Sidecar s = read(name);
            if (s.data.isEmpty()) {
                return null;
            }
            ObjectStore.Found found = store.get(name + "." + s.data);
            if (found != null) { // else a newer write has replaced it
                return found.body;
            }
        }
        throw new IOException(name + ".fence changes all the time");
    }
}
