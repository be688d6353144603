import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicValue;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.SharedValueListener;
import org.apache.curator.framework.recipes.shared.SharedValueReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Values that several clients change: nothing is lost, and everybody hears of it. */
final class Counters {
    private Counters() {}

    static void add(Suite s) {
        s.check("Counters/SharedCount", Counters::sharedCount);
        s.check("Counters/SharedCount loses nothing", Counters::sharedCountAdds);
        s.check("Counters/SharedValue", Counters::sharedValue);
        s.check("Counters/DistributedAtomicLong", Counters::atomicLong);
        s.check("Counters/DistributedAtomicLong loses nothing", Counters::atomicLongAdds);
        s.check("Counters/DistributedAtomicLong with a lock gives each number once", Counters::atomicLongLocked);
        s.check("Counters/CachedAtomicLong gives each number once", Counters::cached);
        s.check("Counters/DistributedAtomicInteger and DistributedAtomicValue", Counters::others);
    }

    static SharedCount sharedCount(Bench b, CuratorFramework c, Events events) throws Exception {
        SharedCount count = b.keep(new SharedCount(c, b.path, 7));
        count.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader reader, int now) {
                events.add("" + now);
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState state) {}
        });
        count.start();
        return count;
    }

    private static void sharedCount(Bench b) throws Exception {
        Events seenByOne = new Events();
        Events seenByTwo = new Events();
        CuratorFramework first = b.client();
        SharedCount one = sharedCount(b, first, seenByOne);
        Bench.equal("the first count", 7, one.getCount());
        CuratorFramework second = b.client();
        Bench.sync(second);
        SharedCount two = sharedCount(b, second, seenByTwo);
        Bench.equal("the first count", 7, two.getCount());
        VersionedValue<Integer> before = two.getVersionedValue();
        one.setCount(8);
        seenByTwo.expect("8");
        Bench.equal("the count", 8, two.getCount());
        Bench.that("a count that has changed is not set", !two.trySetCount(before, 100));
        Bench.that("it is set", two.trySetCount(two.getVersionedValue(), 9));
        // The listener of the one that sets hears of it, too.
        seenByOne.until("9");
        Bench.awaitEqual("the count", 9, one::getCount);
    }

    private static void sharedCountAdds(Bench b) throws Exception {
        final int clients = 3;
        final int each = 25;
        List<Future<Void>> all = new ArrayList<>();
        SharedCount last = null;
        for (int i = 0; i < clients; i++) {
            SharedCount count = b.keep(new SharedCount(b.client(), b.path, 0));
            count.start();
            last = count;
            all.add(b.later(() -> {
                for (int n = 0; n < each; n++) {
                    Bench.await("a try that succeeds", () -> {
                        VersionedValue<Integer> now = count.getVersionedValue();
                        return count.trySetCount(now, now.getValue() + 1);
                    });
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        Bench.awaitEqual("the count", clients * each, last::getCount);
    }

    private static void sharedValue(Bench b) throws Exception {
        CuratorFramework first = b.client();
        SharedValue one = b.keep(new SharedValue(first, b.path, Bench.bytes("seed")));
        one.start();
        CuratorFramework second = b.client();
        Bench.sync(second);
        SharedValue two = b.keep(new SharedValue(second, b.path, Bench.bytes("another seed")));
        Events events = new Events();
        two.getListenable().addListener(new SharedValueListener() {
            @Override
            public void valueHasChanged(SharedValueReader reader, byte[] now) {
                events.add(Bench.text(now));
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState state) {}
        });
        two.start();
        Bench.equal("the first value", "seed", Bench.text(two.getValue()));
        for (String v : List.of("a", "b", "c")) {
            one.setValue(Bench.bytes(v));
            events.expect(v);
            Bench.equal("the value", v, Bench.text(two.getValue()));
        }
        one.setValue(new byte[0]);
        events.expect("");
        events.none();
    }

    private static DistributedAtomicLong newLong(Bench b) throws Exception {
        return new DistributedAtomicLong(b.client(), b.path, new RetryNTimes(1000, 1));
    }

    private static AtomicValue<Long> done(AtomicValue<Long> v) {
        Bench.that("it succeeds", v.succeeded());
        return v;
    }

    private static void atomicLong(Bench b) throws Exception {
        DistributedAtomicLong one = newLong(b);
        DistributedAtomicLong two = newLong(b);
        Bench.that("it is initialized", one.initialize(5L));
        Bench.that("it is initialized once", !two.initialize(6L));
        // A read of another member's client may lag; a change does not.
        AtomicValue<Long> added = done(two.add(10L));
        Bench.equal("before", 5L, added.preValue());
        Bench.equal("after", 15L, added.postValue());
        Bench.equal("after", 14L, done(one.decrement()).postValue());
        Bench.equal("after", 4L, done(one.subtract(10L)).postValue());
        Bench.equal("after", 5L, done(one.increment()).postValue());
        Bench.that("another value is not replaced", !one.compareAndSet(6L, 0L).succeeded());
        Bench.that("the value is replaced", one.compareAndSet(5L, Long.MIN_VALUE).succeeded());
        Bench.awaitEqual("the value", Long.MIN_VALUE, () -> two.get().postValue());
        two.forceSet(-1L);
        Bench.awaitEqual("the value", -1L, () -> one.get().postValue());
    }

    private static void atomicLongAdds(Bench b) throws Exception {
        AtomicLong succeeded = new AtomicLong();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            DistributedAtomicLong n = newLong(b);
            all.add(b.later(() -> {
                for (int k = 0; k < 25; k++) {
                    if (n.increment().succeeded()) {
                        succeeded.incrementAndGet();
                    }
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        Bench.that("some succeed", succeeded.get() > 0);
        Bench.equal("the sum", succeeded.get(), done(newLong(b).add(0L)).postValue());
    }

    private static void atomicLongLocked(Bench b) throws Exception {
        final int clients = 3;
        final int each = 15;
        Set<Long> numbers = ConcurrentHashMap.newKeySet();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            DistributedAtomicLong n = new DistributedAtomicLong(b.client(), b.path, new RetryNTimes(0, 1),
                    PromotedToLock.builder().lockPath(b.path + "-lock").timeout(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS)
                            .retryPolicy(new RetryNTimes(1000, 1)).build());
            all.add(b.later(() -> {
                for (int k = 0; k < each; k++) {
                    numbers.add(done(n.increment()).postValue());
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        Bench.equal("how many different ones", clients * each, numbers.size());
        Bench.that("they have no gap", numbers.contains(1L) && numbers.contains((long) clients * each));
    }

    private static void cached(Bench b) throws Exception {
        Set<Long> numbers = ConcurrentHashMap.newKeySet();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            CachedAtomicLong n = new CachedAtomicLong(newLong(b), 10);
            all.add(b.later(() -> {
                for (int k = 0; k < 40; k++) {
                    numbers.add(done(n.next()).postValue());
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        Bench.equal("how many different ones", 120, numbers.size());
    }

    private static void others(Bench b) throws Exception {
        RetryNTimes retries = new RetryNTimes(1000, 1);
        DistributedAtomicInteger one = new DistributedAtomicInteger(b.client(), b.path, retries);
        DistributedAtomicInteger two = new DistributedAtomicInteger(b.client(), b.path, retries);
        Bench.equal("after", 3, one.add(3).postValue());
        Bench.equal("after", 1, two.subtract(2).postValue());
        DistributedAtomicValue x = new DistributedAtomicValue(b.client(), b.path + "-value", retries);
        DistributedAtomicValue y = new DistributedAtomicValue(b.client(), b.path + "-value", retries);
        Bench.that("it is set", x.trySet(Bench.bytes("a")).succeeded());
        Bench.awaitEqual("the value", "a", () -> Bench.text(y.get().postValue()));
        Bench.that("it is replaced", y.compareAndSet(Bench.bytes("a"), Bench.bytes("b")).succeeded());
        Bench.that("it is not replaced again", !x.compareAndSet(Bench.bytes("a"), Bench.bytes("c")).succeeded());
        Bench.awaitEqual("the value", "b", () -> Bench.text(x.get().postValue()));
    }
}
