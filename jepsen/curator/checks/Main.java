import java.util.regex.Pattern;

/**
 * Apache Curator, unmodified, with checks of what its recipes promise.
 *
 * <pre>java Main SERVERS cluster|alone REGEXP</pre>
 *
 * The first set of checks is for several members; the second for one with extendedTypesEnabled,
 * that looks for containers to delete several times a second. The regular expression says which
 * checks to run.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        Harness harness = new Harness();
        Suite suite = new Suite(harness, args[0], Pattern.compile(args[2]));
        if (args[1].equals("cluster")) {
            Caches.add(suite);
            Nodes.add(suite);
            Queues.add(suite);
            Counters.add(suite);
            Barriers.add(suite);
            Mutexes.add(suite);
            Locks.add(suite);
            Semaphores.add(suite);
            Leaders.add(suite);
            Transactions.add(suite);
            Watchers.add(suite);
            Background.add(suite);
            Access.add(suite);
            Discovery.add(suite);
            Ensemble.add(suite);
            Failures.add(suite);
        } else {
            Containers.add(suite);
            Ensemble.addAlone(suite);
        }
        suite.run();
        System.exit(0);
    }
}
