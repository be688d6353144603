package lockkeeper.curator;

import org.apache.curator.framework.recipes.locks.StandardLockInternalsDriver;

/**
 * Has a mutex wait for every contender of its path with a smaller sequence number, whatever library
 * has made the node:
 *
 * <pre>new FencedMutex(client, path, new AllLayouts())</pre>
 *
 * <p>Curator's own mutex knows the nodes only that are called as its own are, and overtakes those
 * of kazoo, of ZooKeeper's recipes and of its own read-write lock. Leases of semaphores have no
 * place in this order, and are not waited for.
 */
public class AllLayouts extends StandardLockInternalsDriver {
    /** The width of the number that the server appends to the name of a sequential node. */
    private static final int SEQUENCE_DIGITS = 10;
    /** Sorts behind every number. */
    private static final String LAST = "~";

    /** Returns the sequence number of a node; a name without one sorts behind all contenders. */
    @Override
    public String fixForSorting(String name, String lockName) {
        int start = name.length() - SEQUENCE_DIGITS;
        boolean numbered = start >= 0 && name.substring(start).chars().allMatch(c -> '0' <= c && c <= '9');
        return numbered ? name.substring(start) : LAST + name;
    }
}
