package lockkeeper.fence;

import java.io.IOException;

/** The part of a store such as S3 that ObjectsFence needs. HttpStore is one. */
public interface ObjectStore {
    /** An object. */
    final class Found {
        /** The content. */
        public final byte[] body;
        /** The ETag. */
        public final String etag;

        /** An object with these. */
        public Found(byte[] body, String etag) {
            this.body = body;
            this.etag = etag;
        }
    }

    /** Returns an object; null if there is none. */
    Found get(String key) throws IOException;

    /**
     * Writes an object if the present one has this ETag (If-Match), or with null if there is none
     * (If-None-Match: *). False: it has another one, and nothing was written.
     */
    boolean put(String key, byte[] body, String etag) throws IOException;

    /** Deletes an object, if it is there. */
    void delete(String key) throws IOException;
}
