import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

/** All checks, and how they are run: side by side, except for those that kill members. */
final class Suite {
    /** A check fails by throwing. */
    interface Check {
        void run(Bench b) throws Exception;
    }

    private record Named(String name, Check check) {}

    /** The checks mostly wait. */
    private static final int AT_A_TIME = 6;
    /** Bounds a check as a whole; each wait in it has a bound of its own. */
    private static final long LIMIT_S = 150;

    private final Harness harness;
    private final String servers;
    private final Pattern wanted;
    private final List<Named> gentle = new ArrayList<>();
    private final List<Named> rough = new ArrayList<>();
    private final ExecutorService threads = Bench.pool("check");

    Suite(Harness harness, String servers, Pattern wanted) {
        this.harness = harness;
        this.servers = servers;
        this.wanted = wanted;
    }

    /** Adds a check that disturbs no other one. */
    void check(String name, Check check) {
        add(gentle, name, check);
    }

    /** Adds a check that kills members, and so runs alone. */
    void rough(String name, Check check) {
        add(rough, name, check);
    }

    private void add(List<Named> to, String name, Check check) {
        if (wanted.matcher(name).find()) {
            to.add(new Named(name, check));
            harness.say("plan " + name);
        }
    }

    void run() throws Exception {
        ExecutorService lanes = Executors.newFixedThreadPool(AT_A_TIME);
        List<Future<?>> all = new ArrayList<>();
        for (Named n : gentle) {
            all.add(lanes.submit(() -> run(n)));
        }
        for (Future<?> f : all) {
            f.get();
        }
        lanes.shutdown();
        rough.forEach(this::run);
        harness.say("end");
    }

    private void run(Named n) {
        long began = System.nanoTime();
        String why = null;
        try (Bench b = new Bench(harness, servers, "/" + n.name.replaceAll("[^A-Za-z0-9]+", "-"))) {
            Thread[] runner = new Thread[1];
            Future<?> done = threads.submit(() -> {
                runner[0] = Thread.currentThread();
                n.check.run(b);
                return null;
            });
            try {
                done.get(LIMIT_S, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                why = describe(e.getCause());
            } catch (TimeoutException e) {
                why = "hangs in " + List.of(runner[0].getStackTrace());
                done.cancel(true);
            }
        } catch (Exception e) {
            why = describe(e);
        }
        long tookMs = (System.nanoTime() - began) / 1_000_000;
        harness.say(why == null ? "ok " + tookMs + " " + n.name : "failed " + tookMs + " " + n.name + ": " + why);
    }

    /** The error, and where in the checks it happened. */
    private static String describe(Throwable e) {
        e.printStackTrace();
        StringBuilder where = new StringBuilder();
        for (StackTraceElement at : e.getStackTrace()) {
            if (at.getClassName().indexOf('.') < 0) {
                where.append(where.length() == 0 ? " at " : " < ").append(at.getFileName()).append(':').append(at.getLineNumber());
            }
        }
        return e + where.toString();
    }
}
