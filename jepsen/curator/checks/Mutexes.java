import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.Revoker;

/** InterProcessMutex and InterProcessSemaphoreMutex: one at a time. */
final class Mutexes {
    private Mutexes() {}

    static void add(Suite s) {
        s.check("Mutexes/InterProcessMutex excludes", b -> excludes(b, c -> new InterProcessMutex(c, b.path)));
        s.check("Mutexes/InterProcessMutex is reentrant", Mutexes::reentrant);
        s.check("Mutexes/InterProcessMutex has protected nodes", Mutexes::nodes);
        s.check("Mutexes/InterProcessMutex is free when its client closes",
                b -> closed(b, c -> new InterProcessMutex(c, b.path)));
        s.check("Mutexes/InterProcessMutex is free when its session expires",
                b -> expired(b, c -> new InterProcessMutex(c, b.path)));
        s.check("Mutexes/InterProcessMutex is revocable", Mutexes::revocable);
        s.check("Mutexes/InterProcessSemaphoreMutex excludes", b -> excludes(b, c -> new InterProcessSemaphoreMutex(c, b.path)));
        s.check("Mutexes/InterProcessSemaphoreMutex is not reentrant", Mutexes::notReentrant);
        s.check("Mutexes/InterProcessSemaphoreMutex is free when its client closes",
                b -> closed(b, c -> new InterProcessSemaphoreMutex(c, b.path)));
        s.check("Mutexes/InterProcessSemaphoreMutex is free when its session expires",
                b -> expired(b, c -> new InterProcessSemaphoreMutex(c, b.path)));
    }

    interface Make {
        InterProcessLock lock(CuratorFramework c);
    }

    static boolean tries(InterProcessLock lock) throws Exception {
        return lock.acquire(Bench.MOMENT_MS, TimeUnit.MILLISECONDS);
    }

    static void gets(InterProcessLock lock) throws Exception {
        Bench.that("the lock is acquired", lock.acquire(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
    }

    /** Clients that take the lock again and again never meet. */
    static void excludes(Bench b, Make make) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        int[] entered = new int[1];
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            InterProcessLock lock = make.lock(b.client());
            all.add(b.later(() -> {
                for (int n = 0; n < 15; n++) {
                    gets(lock);
                    Bench.equal("how many have the lock", 1, inside.incrementAndGet());
                    entered[0]++; // no other guard than the lock
                    Bench.equal("how many have the lock", 1, inside.getAndDecrement());
                    lock.release();
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        Bench.equal("how often", 45, entered[0]);
        InterProcessLock held = make.lock(b.client());
        InterProcessLock other = make.lock(b.client());
        gets(held);
        Bench.that("it is held", held.isAcquiredInThisProcess() && !other.isAcquiredInThisProcess());
        Bench.that("nobody else gets it", !tries(other));
        Future<Void> waits = b.later(() -> {
            gets(other);
            return null;
        });
        held.release();
        Bench.get(waits);
        Bench.that("nobody else gets it", !tries(held));
    }

    private static void reentrant(Bench b) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(b.client(), b.path);
        InterProcessMutex other = new InterProcessMutex(b.client(), b.path);
        gets(lock);
        gets(lock);
        lock.release();
        Bench.that("it is still held", !tries(other));
        Bench.fails(IllegalMonitorStateException.class, () -> {
            Bench.get(b.later(() -> {
                Bench.fails(IllegalMonitorStateException.class, () -> {
                    lock.release();
                    return null;
                });
                return null;
            }));
            other.release();
            return null;
        });
        lock.release();
        gets(other);
    }

    private static void notReentrant(Bench b) throws Exception {
        InterProcessSemaphoreMutex lock = new InterProcessSemaphoreMutex(b.client(), b.path);
        gets(lock);
        Bench.that("the holder does not get it again", !tries(lock));
        // It belongs to no thread.
        Bench.get(b.later(() -> {
            lock.release();
            return null;
        }));
        gets(lock);
    }

    private static void nodes(Bench b) throws Exception {
        CuratorFramework c = b.client();
        InterProcessMutex lock = new InterProcessMutex(c, b.path + "/parent/lock");
        gets(lock);
        CuratorFramework other = b.client();
        Bench.sync(other);
        Collection<String> participants = new InterProcessMutex(other, b.path + "/parent/lock").getParticipantNodes();
        Bench.equal("how many participate", 1, participants.size());
        String node = participants.iterator().next();
        Bench.that(node + " is protected", node.matches(".*/_c_[0-9a-f-]{36}-lock-[0-9]{10}"));
        Bench.equal("its owner", Bench.session(c), Bench.owner(other, node));
        lock.release();
        Bench.sync(other);
        Bench.that("the node has gone", !Bench.exists(other, node));
    }

    private static void closed(Bench b, Make make) throws Exception {
        CuratorFramework first = b.client();
        gets(make.lock(first));
        InterProcessLock other = make.lock(b.client());
        Bench.that("it is held", !tries(other));
        first.close();
        gets(other);
    }

    private static void expired(Bench b, Make make) throws Exception {
        CuratorFramework first = b.client();
        gets(make.lock(first));
        InterProcessLock other = make.lock(b.client());
        Bench.that("it is held", !tries(other));
        Bench.expire(first);
        gets(other);
        Bench.that("the first one cannot get it back", !tries(make.lock(first)));
    }

    private static void revocable(Bench b) throws Exception {
        InterProcessMutex held = new InterProcessMutex(b.client(), b.path);
        CountDownLatch asked = new CountDownLatch(1);
        held.makeRevocable(lock -> asked.countDown());
        gets(held);
        CuratorFramework c = b.client();
        InterProcessMutex other = new InterProcessMutex(c, b.path);
        Bench.that("it is held", !tries(other));
        Bench.equal("asked", 1L, asked.getCount());
        Bench.sync(c);
        Revoker.attemptRevoke(c, other.getParticipantNodes().iterator().next());
        Bench.get("the request", asked);
        Bench.that("it is held until the holder releases it", !tries(other));
        held.release();
        gets(other);
    }
}
