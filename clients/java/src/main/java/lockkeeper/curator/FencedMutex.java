package lockkeeper.curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.LockInternalsDriver;

/**
 * Curator's InterProcessMutex with a {@link #grant}. It excludes, and is excluded by, the same
 * locks; nothing else changes for a program that takes it instead.
 *
 * <p>An acquire also throws if the lock was lost before its token could be read, and when a thread
 * that has lost the lock acquires it again without a release.
 */
public class FencedMutex extends InterProcessMutex {
    private final Grants grants;

    public FencedMutex(CuratorFramework client, String path) {
        super(client, path);
        grants = new Grants(client);
    }

    /** Makes a mutex with another order of the queue, such as {@link AllLayouts}. */
    public FencedMutex(CuratorFramework client, String path, LockInternalsDriver driver) {
        super(client, path, driver);
        grants = new Grants(client);
    }

    /**
     * Returns the grant of this thread, which is the same one as long as the thread holds the lock.
     */
    public Grant grant() {
        return grants.current();
    }

    @Override
    public void acquire() throws Exception {
        super.acquire();
        grants.enter(getLockPath(), super::release);
    }

    @Override
    public boolean acquire(long time, TimeUnit unit) throws Exception {
        if (!super.acquire(time, unit)) {
            return false;
        }
        grants.enter(getLockPath(), super::release);
        return true;
    }

    @Override
    public void release() throws Exception {
        grants.leave(super::release);
    }
}
