import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.StandardLockInternalsDriver;

/**
 * Curator's InterProcessMutex, but that it waits for every node of the path with a smaller sequence number, whatever
 * library has made it. Curator's own knows the nodes only that are called as its own are, and overtakes those of kazoo,
 * of ZooKeeper's recipes and of its read-write lock.
 *
 * Copy this file into a project that shares a path with programs that cannot be changed. Whether those wait for this
 * lock is another question: docs/guarantees.md has the table.
 */
public class SharedMutex extends InterProcessMutex {
    /** The width of the number that the server appends to the name of a sequential node. */
    private static final int SEQUENCE_DIGITS = 10;

    public SharedMutex(CuratorFramework client, String path) {
        super(client, path, new StandardLockInternalsDriver() {
            @Override
            public String fixForSorting(String name, String lockName) {
                return name.substring(Math.max(0, name.length() - SEQUENCE_DIGITS));
            }
        });
    }
}
