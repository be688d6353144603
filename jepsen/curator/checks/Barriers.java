import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;

/** Nobody passes a barrier before it opens, and everybody after that. */
final class Barriers {
    private Barriers() {}

    static void add(Suite s) {
        s.check("Barriers/DistributedBarrier", Barriers::barrier);
        s.check("Barriers/DistributedDoubleBarrier", Barriers::doubleBarrier);
        s.check("Barriers/DistributedDoubleBarrier of one who goes", Barriers::lost);
    }

    private static void barrier(Bench b) throws Exception {
        DistributedBarrier keeper = new DistributedBarrier(b.client(), b.path);
        CuratorFramework c = b.client();
        DistributedBarrier waiting = new DistributedBarrier(c, b.path);
        for (int round = 0; round < 2; round++) {
            keeper.setBarrier();
            Bench.sync(c);
            Bench.that("the barrier holds", !waiting.waitOnBarrier(Bench.MOMENT_MS, TimeUnit.MILLISECONDS));
            Future<Boolean> passed = b.later(() -> waiting.waitOnBarrier(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
            keeper.removeBarrier();
            Bench.that("the barrier opens", Bench.get(passed));
        }
        Bench.sync(c);
        waiting.waitOnBarrier();
    }

    private static void doubleBarrier(Bench b) throws Exception {
        final int clients = 3;
        final int rounds = 3;
        // How many times somebody went to enter, and to leave. Nobody may be through before all
        // have gone there.
        AtomicInteger entering = new AtomicInteger();
        AtomicInteger leaving = new AtomicInteger();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            CuratorFramework c = b.client();
            all.add(b.later(() -> {
                for (int round = 1; round <= rounds; round++) {
                    DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(c, b.path + "-" + round, clients);
                    entering.incrementAndGet();
                    Bench.that("it enters", barrier.enter(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
                    Bench.that("all are entering", entering.get() >= clients * round);
                    leaving.incrementAndGet();
                    Bench.that("it leaves", barrier.leave(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
                    Bench.that("all are leaving", leaving.get() >= clients * round);
                }
                return null;
            }));
        }
        for (Future<Void> f : all) {
            Bench.get(f);
        }
    }

    private static void lost(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework second = b.client();
        DistributedDoubleBarrier one = new DistributedDoubleBarrier(first, b.path, 2);
        DistributedDoubleBarrier two = new DistributedDoubleBarrier(second, b.path, 2);
        Future<Boolean> entered = b.later(() -> one.enter(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Bench.that("the second enters", two.enter(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Bench.that("the first enters", Bench.get(entered));
        Future<Boolean> left = b.later(() -> two.leave(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Bench.that("nobody leaves alone", !left.isDone());
        first.close();
        Bench.that("who is left leaves", Bench.get(left));
    }
}
