import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * The test that started this program: it reads lines from the program's standard output, and writes
 * to its standard input. The lines are described in the documentation of the Go package
 * lockkeeper/jepsen/curator.
 */
final class Harness {
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();

    Harness() {
        Thread reader = new Thread(this::read, "harness");
        reader.setDaemon(true);
        reader.start();
    }

    private void read() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                answers.add(line);
            }
        } catch (IOException e) {
            System.err.println("harness: " + e);
        }
        // The test has gone, so there is nobody left to check for.
        Runtime.getRuntime().halt(1);
    }

    synchronized void say(String line) {
        out.println(line.replace('\n', ' ').replace('\r', ' '));
    }

    /** Has the test do something to a member, and returns when it is done. */
    private synchronized void ask(String what) throws InterruptedException {
        out.println("do " + what);
        String answer = answers.take();
        if (!answer.equals("ok")) {
            throw new IllegalStateException(what + ": " + answer);
        }
    }

    /** Ends the member that serves clients at this address, as kill -9 does. */
    void kill(String address) throws InterruptedException {
        ask("kill " + address);
    }

    /** Starts it again, and waits until it serves. */
    void start(String... addresses) throws InterruptedException {
        ask("start " + String.join(" ", addresses));
    }
}
