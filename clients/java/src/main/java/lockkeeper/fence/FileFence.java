package lockkeeper.fence;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Remembers in a file that processes of one machine share. Any thread may use it.
 *
 * <p>The file is the one of Go's fence.File: text with a checksum, replaced as a whole. A token is
 * durable before it is accepted. A damaged file is never taken for an empty one. Beside it stands an
 * empty file with ".lock" added to the name; do not delete it while a process runs.
 */
public final class FileFence {
    /** What is done while a token is accepted. */
    @FunctionalInterface
    public interface Work {
        /** Does it. */
        void run() throws IOException;
    }

    private static final String HEAD = "lockkeeper-fence 1\n";
    private static final String TAIL = "crc32c ";

    // The locks of a FileChannel belong to the JVM, and the first channel that is closed ends them.
    private static final Map<Path, ReentrantLock> TURNS = new ConcurrentHashMap<>();

    private final Path path;
    private final ReentrantLock turn;
    private byte[] durable; // the content that this fence made durable last; guarded by turn

    /** Opens the file. That there is none is all right: the first check makes it. */
    public FileFence(Path path) throws IOException {
        Path parent = path.toAbsolutePath().getParent().toRealPath();
        this.path = parent.resolve(path.getFileName());
        turn = TURNS.computeIfAbsent(this.path, p -> new ReentrantLock());
        decode(read());
    }

    /** The largest token seen; 0 if none. */
    public long newest(String resource) throws IOException {
        return decode(read()).getOrDefault(Names.quote(resource), 0L);
    }

    /** Accepts a token or refuses it. */
    public void check(String resource, long token) throws IOException {
        run(resource, token, () -> { });
    }

    /**
     * Does the work if the token is accepted. While it runs every other check waits, in any process
     * that uses the file, so the writes of the work come in order.
     */
    public void run(String resource, long token, Work work) throws IOException {
        turn.lock();
        try (FileChannel lock = FileChannel.open(path.resolveSibling(path.getFileName() + ".lock"),
                StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            lock.lock(); // until it is closed
            byte[] data = read();
            Map<String, Long> tokens = decode(data);
            String key = Names.quote(resource);
            boolean larger = Names.check(resource, token, tokens.getOrDefault(key, 0L));
            // A token that the file already has may not be durable: another process may have been
            // killed before it synced the directory.
            if (larger || data == null || !Arrays.equals(data, durable)) {
                tokens.put(key, token);
                write(encode(tokens));
            }
            work.run();
        } finally {
            turn.unlock();
        }
    }

    private byte[] read() throws IOException {
        try {
            return Files.readAllBytes(path);
        } catch (NoSuchFileException e) {
            return null;
        }
    }

    private void write(byte[] data) throws IOException {
        durable = null;
        Path temp = path.resolveSibling(path.getFileName() + ".new"); // the lock is held
        Files.deleteIfExists(temp);
        try (FileChannel file = FileChannel.open(temp, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            for (ByteBuffer left = ByteBuffer.wrap(data); left.hasRemaining();) {
                file.write(left);
            }
            file.force(true);
        }
        Files.move(temp, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        try (FileChannel directory = FileChannel.open(path.getParent(), StandardOpenOption.READ)) {
            directory.force(true);
        }
        durable = data;
    }

    private static String tail(byte[] body, int length) {
        int crc = -1;
        for (int i = 0; i < length; i++) {
            crc ^= body[i] & 0xff;
            for (int bit = 0; bit < 8; bit++) {
                crc = crc >>> 1 ^ ((crc & 1) == 0 ? 0 : 0x82f63b78);
            }
        }
        return String.format("%s%08x\n", TAIL, ~crc);
    }

    private static byte[] encode(Map<String, Long> tokens) {
        StringBuilder out = new StringBuilder(HEAD);
        tokens.forEach((name, token) -> out.append(token).append(' ').append(name).append('\n'));
        byte[] body = out.toString().getBytes(StandardCharsets.ISO_8859_1);
        return out.append(tail(body, body.length)).toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    /** The tokens by quoted names, as they are in the file: its names may have bytes that are no text. */
    private Map<String, Long> decode(byte[] data) throws DamagedException {
        Map<String, Long> tokens = new TreeMap<>();
        if (data == null) {
            return tokens;
        }
        String text = new String(data, StandardCharsets.ISO_8859_1); // the length is the number of bytes
        int end = text.lastIndexOf("\n" + TAIL) + 1;
        if (!text.startsWith(HEAD) || end == 0) {
            throw new DamagedException(path + ": it does not begin or end as such a file does");
        }
        if (!text.substring(end).equals(tail(data, end))) {
            throw new DamagedException(path + ": the checksum is wrong");
        }
        if (end > HEAD.length()) {
            for (String line : text.substring(HEAD.length(), end - 1).split("\n", -1)) {
                int space = line.indexOf(' ');
                if (!line.matches("-?[0-9]{1,19} \".*\"")) {
                    throw new DamagedException(path + ": a line that has no token");
                }
                try {
                    tokens.put(line.substring(space + 1), Long.parseLong(line.substring(0, space)));
                } catch (NumberFormatException e) {
                    throw new DamagedException(path + ": a token that is too large");
                }
            }
        }
        return tokens;
    }
}
