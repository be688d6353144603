package lockkeeper.curator;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.utils.ZKPaths;

/**
 * Curator's InterProcessSemaphoreV2, whose leases have a grant each. It shares its leases with
 * Curator's own.
 *
 * <p>The tokens of leases grow with each lease. With more than one lease at a time an older lease
 * stands beside a newer one, so a resource that takes nothing older than the newest token wants a
 * semaphore of one lease, or one resource for each lease.
 */
public class FencedSemaphore extends InterProcessSemaphoreV2 {
    private static final String LEASES = "leases"; // as Curator calls the directory

    private final CuratorFramework client;
    private final String leases;

    public FencedSemaphore(CuratorFramework client, String path, int maxLeases) {
        super(client, path, maxLeases);
        this.client = client;
        leases = ZKPaths.makePath(path, LEASES);
    }

    public FencedSemaphore(CuratorFramework client, String path, SharedCountReader count) {
        super(client, path, count);
        this.client = client;
        leases = ZKPaths.makePath(path, LEASES);
    }

    /** A lease with its grant. Close it to return it. */
    public static final class FencedLease implements Lease {
        private final Lease lease;
        private final Grant grant;

        private FencedLease(Lease lease, Grant grant) {
            this.lease = lease;
            this.grant = grant;
        }

        public Grant grant() {
            return grant;
        }

        @Override
        public void close() throws IOException {
            grant.end();
            lease.close();
        }

        @Override
        public byte[] getData() throws Exception {
            return lease.getData();
        }

        @Override
        public String getNodeName() {
            return lease.getNodeName();
        }
    }

    @Override
    public FencedLease acquire() throws Exception {
        return (FencedLease) super.acquire();
    }

    @Override
    public FencedLease acquire(long time, TimeUnit unit) throws Exception {
        return (FencedLease) super.acquire(time, unit);
    }

    /** Acquires leases; the other methods call this one. Each of them is a {@link FencedLease}. */
    @Override
    public Collection<Lease> acquire(int quantity, long time, TimeUnit unit) throws Exception {
        Collection<Lease> plain = super.acquire(quantity, time, unit);
        if (plain == null) {
            return null;
        }
        List<Lease> fenced = new ArrayList<>();
        try {
            for (Lease lease : plain) {
                Grant grant = Grant.of(client, ZKPaths.makePath(leases, lease.getNodeName()));
                fenced.add(new FencedLease(lease, grant));
            }
        } catch (Throwable t) {
            returnAll(fenced);
            returnAll(plain);
            throw t;
        }
        return fenced;
    }
}
