import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The events of a listener, in order. */
final class Events {
    private final BlockingQueue<String> queue = new LinkedBlockingQueue<>();

    void add(String event) {
        queue.add(event);
    }

    /** The next one, which is waited for. */
    String next() throws InterruptedException {
        String event = queue.poll(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS);
        if (event == null) {
            throw new Failure("no event");
        }
        return event;
    }

    /** The next ones are exactly these, in this order. */
    void expect(String... wants) throws InterruptedException {
        for (String want : wants) {
            String got = queue.poll(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS);
            if (got == null) {
                throw new Failure("no event, want " + want);
            }
            Bench.equal("the next event", want, got);
        }
    }

    /** Waits for an event; the ones before it, which are returned, may be any. */
    List<String> until(String want) throws InterruptedException {
        List<String> before = new ArrayList<>();
        for (;;) {
            String got = queue.poll(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS);
            if (got == null) {
                throw new Failure("no event " + want + " but " + before);
            }
            if (got.equals(want)) {
                return before;
            }
            before.add(got);
        }
    }

    /** Nothing more has come so far. */
    void none() {
        List<String> more = new ArrayList<>(queue);
        if (!more.isEmpty()) {
            throw new Failure("events that should not be: " + more);
        }
    }
}
