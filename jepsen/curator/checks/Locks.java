import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;

/** InterProcessReadWriteLock and InterProcessMultiLock. */
final class Locks {
    private Locks() {}

    static void add(Suite s) {
        s.check("Locks/InterProcessReadWriteLock", Locks::readWrite);
        s.check("Locks/InterProcessReadWriteLock of many", Locks::readWriteMany);
        s.check("Locks/InterProcessReadWriteLock lets a writer in before later readers", Locks::writerFirst);
        s.check("Locks/InterProcessReadWriteLock goes down from writing to reading", Locks::downgrade);
        s.check("Locks/InterProcessMultiLock", Locks::multi);
    }

    private static void readWrite(Bench b) throws Exception {
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(b.client(), b.path, Bench.bytes("one"));
        InterProcessReadWriteLock two = new InterProcessReadWriteLock(b.client(), b.path, Bench.bytes("two"));
        Mutexes.gets(one.readLock());
        Mutexes.gets(two.readLock());
        Bench.that("nobody writes while others read", !Mutexes.tries(new InterProcessReadWriteLock(b.client(), b.path).writeLock()));
        one.readLock().release();
        two.readLock().release();
        Mutexes.gets(one.writeLock());
        Bench.that("nobody reads while another writes", !Mutexes.tries(two.readLock()));
        Bench.that("nobody writes while another writes", !Mutexes.tries(two.writeLock()));
        CuratorFramework c = b.client();
        Bench.sync(c);
        String node = new InterProcessReadWriteLock(c, b.path).writeLock().getParticipantNodes().iterator().next();
        Bench.equal("the writer's data", "one", Bench.text(c.getData().forPath(node)));
        one.writeLock().release();
        Mutexes.gets(two.writeLock());
    }

    private static void readWriteMany(Bench b) throws Exception {
        AtomicInteger readers = new AtomicInteger();
        AtomicInteger writers = new AtomicInteger();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(b.client(), b.path);
            boolean writes = i % 2 == 0;
            all.add(b.later(() -> {
                for (int n = 0; n < 10; n++) {
                    InterProcessMutex mine = writes ? lock.writeLock() : lock.readLock();
                    Mutexes.gets(mine);
                    if (writes) {
                        Bench.equal("writers", 1, writers.incrementAndGet());
                        Bench.equal("readers while one writes", 0, readers.get());
                        writers.decrementAndGet();
                    } else {
                        readers.incrementAndGet();
                        Bench.equal("writers while one reads", 0, writers.get());
                        readers.decrementAndGet();
                    }
                    mine.release();
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
    }

    private static void writerFirst(Bench b) throws Exception {
        CuratorFramework c = b.client();
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(b.client(), b.path);
        InterProcessReadWriteLock two = new InterProcessReadWriteLock(b.client(), b.path);
        InterProcessReadWriteLock three = new InterProcessReadWriteLock(b.client(), b.path);
        Mutexes.gets(one.readLock());
        Future<Void> writer = b.later(() -> {
            Mutexes.gets(two.writeLock());
            return null;
        });
        Bench.awaitEqual("in the queue", 2, () -> c.getChildren().forPath(b.path).size());
        Bench.that("a reader behind the writer waits", !Mutexes.tries(three.readLock()));
        one.readLock().release();
        Bench.get(writer);
        Bench.that("a reader behind the writer waits", !Mutexes.tries(three.readLock()));
    }

    private static void downgrade(Bench b) throws Exception {
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(b.client(), b.path);
        InterProcessReadWriteLock two = new InterProcessReadWriteLock(b.client(), b.path);
        Mutexes.gets(one.writeLock());
        Mutexes.gets(one.readLock());
        Bench.that("nobody else reads", !Mutexes.tries(two.readLock()));
        one.writeLock().release();
        Mutexes.gets(two.readLock());
        Bench.that("there is no way up", !Mutexes.tries(one.writeLock()));
    }

    private static void multi(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework second = b.client();
        List<String> paths = List.of(b.path + "-a", b.path + "-b");
        InterProcessLock both = new InterProcessMultiLock(first, paths);
        InterProcessLock justA = new InterProcessMutex(second, paths.get(0));
        InterProcessLock justB = new InterProcessMutex(second, paths.get(1));
        Mutexes.gets(justB);
        Bench.that("all or none", !Mutexes.tries(both));
        Mutexes.gets(justA); // the first lock was given back
        justA.release();
        justB.release();
        Mutexes.gets(both);
        Bench.that("the first is held", !Mutexes.tries(justA));
        Bench.that("the second is held", !Mutexes.tries(justB));
        both.release();
        Mutexes.gets(justA);
        Mutexes.gets(justB);
        InterProcessLock mixed = new InterProcessMultiLock(List.of(
                new InterProcessSemaphoreMutex(first, b.path + "-c"), new InterProcessMutex(first, b.path + "-d")));
        Mutexes.gets(mixed);
        Bench.that("the first is held", !Mutexes.tries(new InterProcessSemaphoreMutex(second, b.path + "-c")));
        Bench.that("the second is held", !Mutexes.tries(new InterProcessMutex(second, b.path + "-d")));
    }
}
