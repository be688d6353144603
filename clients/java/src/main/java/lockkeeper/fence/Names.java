package lockkeeper.fence;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;

/** The rule of all fences, and the forms that resources and tokens have in the stores. */
final class Names {
    private static final SecureRandom RANDOM = new SecureRandom();

    private Names() {
    }

    /** The rule: tells whether token is to be remembered. */
    static boolean check(String resource, long token, long newest) throws StaleException {
        if (token < 1) {
            throw new IllegalArgumentException("not a token: " + token + " for " + quote(resource));
        }
        if (token < newest) {
            throw new StaleException(resource, token, newest);
        }
        return token > newest;
    }

    /** The exception for a token that a resource has refused; newest is the text that it remembers. */
    static FenceException refusal(String resource, long token, String newest, String place) {
        try {
            long n = Long.parseLong(newest);
            if (n > token && newest.charAt(0) != '+') {
                return new StaleException(resource, token, n);
            }
        } catch (NumberFormatException e) {
            // It is said below.
        }
        return new DamagedException(place + " has " + quote(newest.substring(0, Math.min(40, newest.length()))));
    }

    /** Go's strconv.QuoteToASCII. */
    static String quote(String name) {
        StringBuilder out = new StringBuilder("\"");
        name.codePoints().forEach(n -> {
            int at = "\u0007\b\f\n\r\t\u000b\\\"".indexOf(n);
            if (at >= 0) {
                out.append('\\').append("abfnrtv\\\"".charAt(at));
            } else if (n >= 0x20 && n < 0x7f) {
                out.append((char) n);
            } else if (n < 0x80) {
                out.append(String.format("\\x%02x", n));
            } else {
                out.append(String.format(n < 0x10000 ? "\\u%04x" : "\\U%08x", n));
            }
        });
        return out.append('"').toString();
    }

    /** The key of a resource's row: SHA-256 of its name, in hexadecimal. */
    static String rowId(String resource) {
        try {
            return hex(MessageDigest.getInstance("SHA-256").digest(resource.getBytes(StandardCharsets.UTF_8)));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e); // every Java has it
        }
    }

    /** The name of a resource for people, which fits into every database. */
    static String displayName(String resource) {
        String quoted = quote(resource);
        String name = quoted.substring(1, quoted.length() - 1).replace("\\\"", "\"");
        return name.substring(0, Math.min(255, name.length()));
    }

    /** A number that no other write has. */
    static String nonce() {
        byte[] b = new byte[8];
        RANDOM.nextBytes(b);
        return hex(b);
    }

    private static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            out.append(String.format("%02x", b & 0xff));
        }
        return out.toString();
    }
}
