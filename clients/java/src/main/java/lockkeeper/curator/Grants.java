package lockkeeper.curator;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.curator.framework.CuratorFramework;

/**
 * The grants of a mutex, one for each thread that holds it: Curator's locks are re-entrant by
 * thread.
 */
final class Grants {
    /** A step of Curator's own lock. */
    interface Step {
        void run() throws Exception;
    }

    private static final class Holding {
        final Grant grant;
        int depth = 1; // used by the thread that holds the lock only

        Holding(Grant grant) {
            this.grant = grant;
        }
    }

    private final CuratorFramework client;
    private final Map<Thread, Holding> holdings = new ConcurrentHashMap<>();

    Grants(CuratorFramework client) {
        this.client = client;
    }

    /**
     * Follows an acquire of Curator's lock with this node. If there is no grant for it, undo
     * releases the lock.
     */
    void enter(String node, Step undo) throws Exception {
        Thread thread = Thread.currentThread();
        try {
            Holding holding = holdings.get(thread);
            if (holding == null) {
                holdings.put(thread, new Holding(Grant.of(client, node)));
            } else if (holding.grant.isHeld()) {
                holding.depth++;
            } else {
                throw new IllegalStateException("this thread has lost the lock, and has not released it: " + node);
            }
        } catch (Throwable t) {
            try {
                undo.run();
            } catch (Exception e) {
                t.addSuppressed(e);
            }
            throw t;
        }
    }

    /** Releases Curator's lock; the grant ends before the last release. */
    void leave(Step release) throws Exception {
        Thread thread = Thread.currentThread();
        Holding holding = holdings.get(thread);
        if (holding != null && --holding.depth == 0) {
            holdings.remove(thread);
            holding.grant.end();
        }
        release.run();
    }

    /** Returns the grant of this thread. */
    Grant current() {
        Holding holding = holdings.get(Thread.currentThread());
        if (holding == null) {
            throw new IllegalMonitorStateException("this thread does not hold the lock");
        }
        return holding.grant;
    }
}
