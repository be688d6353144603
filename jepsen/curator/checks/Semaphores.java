import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** InterProcessSemaphoreV2: as many at a time as it has leases. */
final class Semaphores {
    private Semaphores() {}

    static void add(Suite s) {
        s.check("Semaphores/InterProcessSemaphoreV2", Semaphores::leases);
        s.check("Semaphores/InterProcessSemaphoreV2 of many", Semaphores::many);
        s.check("Semaphores/InterProcessSemaphoreV2 gets back the leases of who has gone", Semaphores::gone);
        s.check("Semaphores/InterProcessSemaphoreV2 with a SharedCount", Semaphores::shared);
    }

    private static Lease tries(InterProcessSemaphoreV2 s) throws Exception {
        return s.acquire(Bench.MOMENT_MS, TimeUnit.MILLISECONDS);
    }

    private static Lease gets(InterProcessSemaphoreV2 s) throws Exception {
        Lease lease = s.acquire(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS);
        Bench.that("a lease is acquired", lease != null);
        return lease;
    }

    private static void leases(Bench b) throws Exception {
        InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(b.client(), b.path, 3);
        CuratorFramework second = b.client();
        InterProcessSemaphoreV2 two = new InterProcessSemaphoreV2(second, b.path, 3);
        one.setNodeData(Bench.bytes("mine"));
        Lease first = gets(one);
        Bench.equal("the lease's data", "mine", Bench.text(first.getData()));
        Collection<Lease> more = two.acquire(2, Bench.PATIENCE_MS, TimeUnit.MILLISECONDS);
        Bench.equal("how many leases", 2, more.size());
        Bench.equal("a fourth lease of three", null, tries(one));
        Bench.equal("two more leases", null, two.acquire(2, Bench.MOMENT_MS, TimeUnit.MILLISECONDS));
        Bench.sync(second);
        Bench.equal("how many participate", 3, two.getParticipantNodes().size());
        Future<Lease> waits = b.later(() -> gets(two));
        first.close();
        Bench.get(waits);
        Bench.equal("a fourth lease of three", null, tries(one));
        two.returnAll(more);
        one.returnAll(one.acquire(2));
    }

    private static void many(Bench b) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(b.client(), b.path, 2);
            all.add(b.later(() -> {
                for (int n = 0; n < 8; n++) {
                    Lease lease = gets(s);
                    Bench.that("at most two are inside", inside.incrementAndGet() <= 2);
                    inside.decrementAndGet();
                    s.returnLease(lease);
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
    }

    private static void gone(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework second = b.client();
        gets(new InterProcessSemaphoreV2(first, b.path, 2));
        gets(new InterProcessSemaphoreV2(second, b.path, 2));
        InterProcessSemaphoreV2 other = new InterProcessSemaphoreV2(b.client(), b.path, 2);
        Bench.equal("a third lease of two", null, tries(other));
        first.close();
        gets(other);
        Bench.equal("a third lease of two", null, tries(other));
        Bench.expire(second);
        gets(other);
    }

    private static void shared(Bench b) throws Exception {
        CuratorFramework c = b.client();
        SharedCount max = b.keep(new SharedCount(c, b.path + "-max", 1));
        max.start();
        InterProcessSemaphoreV2 s = new InterProcessSemaphoreV2(c, b.path, max);
        gets(s);
        Bench.equal("a second lease of one", null, tries(s));
        CuratorFramework other = b.client();
        Bench.sync(other);
        SharedCount theirs = b.keep(new SharedCount(other, b.path + "-max", 1));
        theirs.start();
        Future<Lease> waits = b.later(() -> gets(s));
        theirs.setCount(2);
        Bench.awaitEqual("the limit", 2, max::getCount);
        // One who waits already may go on with the limit that it began with, until something
        // changes below the node.
        Bench.await("a lease of two", () -> {
            Lease lease = tries(s);
            if (lease != null) {
                lease.close();
            }
            return lease != null || waits.isDone();
        });
        Bench.get(waits);
        Bench.equal("a third lease of two", null, tries(s));
    }
}
