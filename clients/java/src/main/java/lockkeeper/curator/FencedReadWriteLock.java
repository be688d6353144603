package lockkeeper.curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;

/**
 * Curator's InterProcessReadWriteLock with a grant for each reader and each writer; see {@link
 * FencedMutex}.
 *
 * <p>Only a writer's token is for a fence: readers share, and a reader that came early has a
 * smaller token than one that came late.
 */
public class FencedReadWriteLock extends InterProcessReadWriteLock {
    public FencedReadWriteLock(CuratorFramework client, String path) {
        this(client, path, null);
    }

    /** Makes a lock with these data in its nodes; null stands for Curator's default. */
    public FencedReadWriteLock(CuratorFramework client, String path, byte[] data) {
        this(client, path, data, new Writer(client, path, data));
    }

    private FencedReadWriteLock(CuratorFramework client, String path, byte[] data, Writer writer) {
        super(writer, new Reader(client, path, data, writer));
    }

    @Override
    public Reader readLock() {
        return (Reader) super.readLock();
    }

    @Override
    public Writer writeLock() {
        return (Writer) super.writeLock();
    }

    /** The lock for writing. */
    public static class Writer extends WriteLock {
        private final Grants grants;

        Writer(CuratorFramework client, String path, byte[] data) {
            super(client, path, data);
            grants = new Grants(client);
        }

        /** Returns the grant of this thread. */
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

    /** The lock for reading. */
    public static class Reader extends ReadLock {
        private final Grants grants;

        Reader(CuratorFramework client, String path, byte[] data, Writer writer) {
            super(client, path, data, writer);
            grants = new Grants(client);
        }

        /** Returns the grant of this thread. */
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
}
