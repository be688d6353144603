import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.ErrorMode;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;

/**
 * What one client puts into a queue another one gets: each item, once, in the order that the queue
 * promises.
 */
final class Queues {
    private Queues() {}

    static void add(Suite s) {
        s.check("Queues/DistributedQueue keeps the order", Queues::ordered);
        s.check("Queues/DistributedQueue gives each item to one of its consumers", Queues::shared);
        s.check("Queues/DistributedQueue puts back what its consumer failed at", Queues::requeued);
        s.check("Queues/DistributedQueue keeps what its consumer did not finish", Queues::unfinished);
        s.check("Queues/DistributedQueue is full at its limit", Queues::bounded);
        s.check("Queues/DistributedIdQueue", Queues::ids);
        s.check("Queues/DistributedPriorityQueue", Queues::priorities);
        s.check("Queues/DistributedDelayQueue", Queues::delays);
        s.check("Queues/SimpleDistributedQueue", Queues::simple);
    }

    interface Take {
        void item(String item) throws Exception;
    }

    private static QueueConsumer<String> consumer(Take take) {
        return new QueueConsumer<>() {
            @Override
            public void consumeMessage(String item) throws Exception {
                take.item(item);
            }

            @Override
            public void stateChanged(CuratorFramework c, ConnectionState state) {}
        };
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<>() {
        @Override
        public byte[] serialize(String item) {
            return Bench.bytes(item);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return Bench.text(bytes);
        }
    };

    /** A queue that gives its items to take; if that is null it only puts. */
    private static QueueBuilder<String> queue(Bench b, CuratorFramework c, Take take) {
        return QueueBuilder.builder(c, take == null ? null : consumer(take), TEXT, b.path);
    }

    private static DistributedQueue<String> producer(Bench b) throws Exception {
        DistributedQueue<String> q = b.keep(queue(b, b.client(), null).buildQueue());
        q.start();
        return q;
    }

    private static void awaitEmpty(CuratorFramework c, String path) throws Exception {
        Bench.awaitEqual("what is left in the queue", "[]", () -> c.getChildren().forPath(path).toString());
    }

    private static void ordered(Bench b) throws Exception {
        DistributedQueue<String> producer = producer(b);
        producer.put("a");
        producer.put("b");
        Bench.that("all is put", producer.flushPuts(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Events got = new Events();
        CuratorFramework c = b.client();
        b.keep(queue(b, c, got::add).buildQueue()).start();
        got.expect("a", "b");
        producer.put("c");
        got.expect("c");
        List<String> more = new ArrayList<>(List.of("d", "e", "f"));
        producer.putMulti(new MultiItem<>() {
            @Override
            public String nextItem() {
                return more.isEmpty() ? null : more.remove(0);
            }
        });
        got.expect("d", "e", "f");
        awaitEmpty(c, b.path);
        got.none();
    }

    private static void shared(Bench b) throws Exception {
        Events got = new Events();
        CuratorFramework c = b.client();
        b.keep(queue(b, c, got::add).lockPath(b.path + "-locks").buildQueue()).start();
        b.keep(queue(b, b.client(), got::add).lockPath(b.path + "-locks").buildQueue()).start();
        DistributedQueue<String> one = producer(b);
        DistributedQueue<String> two = producer(b);
        TreeSet<String> want = new TreeSet<>();
        for (int i = 0; i < 40; i++) {
            (i % 2 == 0 ? one : two).put("item " + i);
            want.add("item " + i);
        }
        TreeSet<String> has = new TreeSet<>();
        for (int i = 0; i < 40; i++) {
            has.add(got.next());
        }
        Bench.equal("what was consumed", want, has);
        awaitEmpty(c, b.path);
        got.none();
    }

    private static void requeued(Bench b) throws Exception {
        Events got = new Events();
        CuratorFramework c = b.client();
        int[] failed = new int[1];
        DistributedQueue<String> q = b.keep(queue(b, c, item -> {
            got.add(item);
            if (failed[0]++ < 2) {
                throw new Failure("a consumer that fails");
            }
        }).lockPath(b.path + "-locks").buildQueue());
        q.setErrorMode(ErrorMode.REQUEUE);
        q.start();
        producer(b).put("a");
        got.expect("a", "a", "a");
        awaitEmpty(c, b.path);
        got.none();
    }

    private static void unfinished(Bench b) throws Exception {
        Events got = new Events();
        CuratorFramework first = b.client();
        CountDownLatch taken = new CountDownLatch(1);
        DistributedQueue<String> never = b.keep(queue(b, first, item -> {
            taken.countDown();
            new CountDownLatch(1).await();
        }).lockPath(b.path + "-locks").buildQueue());
        never.start();
        DistributedQueue<String> producer = producer(b);
        producer.put("a");
        Bench.get("the first consumer", taken);
        // Its session takes the lock on the item with it. The next look at the queue comes with the
        // next item.
        first.getZookeeperClient().getZooKeeper().close();
        CuratorFramework second = b.client();
        b.keep(queue(b, second, got::add).lockPath(b.path + "-locks").buildQueue()).start();
        producer.put("b");
        TreeSet<String> has = new TreeSet<>(List.of(got.next(), got.next()));
        Bench.equal("what the second consumer got", new TreeSet<>(List.of("a", "b")), has);
        awaitEmpty(second, b.path);
    }

    private static void bounded(Bench b) throws Exception {
        CuratorFramework c = b.client();
        DistributedQueue<String> full = b.keep(queue(b, c, null).maxItems(2).putInBackground(false).buildQueue());
        full.start();
        TreeSet<String> fit = new TreeSet<>();
        // It counts the visible items in the queue, so it may take a few more at first.
        Bench.await("a full queue", () -> {
            String next = "item " + fit.size();
            return !full.put(next, (int) Bench.MOMENT_MS, TimeUnit.MILLISECONDS) || !fit.add(next);
        });
        Bench.that("two fit", fit.size() >= 2);
        Bench.equal("how many are in the queue", fit.size(), c.getChildren().forPath(b.path).size());
        Future<Boolean> waits = b.later(() -> full.put("one more", (int) Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Events got = new Events();
        b.keep(queue(b, b.client(), got::add).buildQueue()).start();
        Bench.equal("what was consumed", fit, new TreeSet<>(got.until("one more")));
        Bench.that("when there is room it fits", Bench.get(waits));
        got.none();
    }

    private static void ids(Bench b) throws Exception {
        DistributedIdQueue<String> producer = b.keep(queue(b, b.client(), null).buildIdQueue());
        producer.start();
        producer.put("a", "id a");
        producer.put("b", "id b");
        producer.put("c", "id c");
        Bench.that("all is put", producer.flushPuts(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        CuratorFramework c = b.client();
        Bench.sync(c);
        DistributedIdQueue<String> other = b.keep(queue(b, c, null).buildIdQueue());
        other.start();
        Bench.equal("removed", 1, other.remove("id b"));
        Bench.equal("removed", 0, other.remove("id x"));
        Events got = new Events();
        b.keep(queue(b, b.client(), got::add).buildIdQueue()).start();
        got.expect("a", "c");
        awaitEmpty(c, b.path);
        got.none();
    }

    private static void priorities(Bench b) throws Exception {
        DistributedPriorityQueue<String> producer = b.keep(queue(b, b.client(), null).buildPriorityQueue(0));
        producer.start();
        producer.put("last", 100);
        producer.put("first", -5);
        producer.put("middle", 7);
        Bench.that("all is put", producer.flushPuts(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Events got = new Events();
        CuratorFramework c = b.client();
        Bench.sync(c);
        b.keep(queue(b, c, got::add).buildPriorityQueue(0)).start();
        got.expect("first", "middle", "last");
        awaitEmpty(c, b.path);
        got.none();
    }

    private static void delays(Bench b) throws Exception {
        DistributedDelayQueue<String> producer = b.keep(queue(b, b.client(), null).buildDelayQueue());
        producer.start();
        long now = System.currentTimeMillis();
        producer.put("second", now + 800);
        producer.put("first", now + 400);
        Bench.that("all is put", producer.flushPuts(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Events got = new Events();
        Events early = new Events();
        CuratorFramework c = b.client();
        Bench.sync(c);
        b.keep(queue(b, c, item -> {
            if (System.currentTimeMillis() < now + (item.equals("first") ? 400 : 800)) {
                early.add(item);
            }
            got.add(item);
        }).buildDelayQueue()).start();
        got.expect("first", "second");
        early.none();
        awaitEmpty(c, b.path);
    }

    private static void simple(Bench b) throws Exception {
        SimpleDistributedQueue one = new SimpleDistributedQueue(b.client(), b.path);
        CuratorFramework c = b.client();
        SimpleDistributedQueue two = new SimpleDistributedQueue(c, b.path);
        Bench.equal("peek", null, one.peek());
        Bench.sync(c);
        Bench.fails(NoSuchElementException.class, two::remove);
        Bench.fails(NoSuchElementException.class, two::element);
        Bench.equal("poll", null, two.poll());
        Bench.equal("poll", null, two.poll(Bench.MOMENT_MS, TimeUnit.MILLISECONDS));
        Future<byte[]> take = b.later(two::take);
        one.offer(Bench.bytes("a"));
        Bench.equal("take", "a", Bench.text(Bench.get(take)));
        Future<byte[]> poll = b.later(() -> two.poll(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        one.offer(Bench.bytes("b"));
        Bench.equal("poll", "b", Bench.text(Bench.get(poll)));
        IntStream.range(0, 12).forEach(i -> {
            try {
                one.offer(Bench.bytes("" + i));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Bench.sync(c);
        Bench.equal("peek", "0", Bench.text(two.peek()));
        Bench.equal("element", "0", Bench.text(two.element()));
        for (int i = 0; i < 12; i++) {
            Bench.equal("remove", "" + i, Bench.text(two.remove()));
        }
        Bench.equal("poll", null, two.poll());
    }
}
