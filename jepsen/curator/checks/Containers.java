import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/** Containers and nodes with a time to live: they go by themselves, but not before. */
final class Containers {
    private Containers() {}

    /** Long against how often the member looks, short for who waits. */
    private static final long TTL_MS = 1000;

    static void add(Suite s) {
        s.check("Containers/go level by level", Containers::levels);
        s.check("Containers/go after the lock below them", Containers::lock);
        s.check("Containers/stay while they have a child, or never had one", Containers::stay);
        s.check("Containers/go after their last ephemeral", Containers::ephemeral);
        s.check("Containers/a node with a time to live", Containers::ttl);
        s.check("Containers/a node with a time to live stays while it is written", Containers::written);
        s.check("Containers/PersistentTtlNode stays as long as its client", Containers::persistentTtl);
        s.check("Containers/PersistentTtlNode comes back", Containers::persistentTtlDeleted);
        s.check("Containers/in transactions", Containers::transactions);
    }

    private static void awaitGone(CuratorFramework c, String path) throws Exception {
        Bench.await("the end of " + path, () -> !Bench.exists(c, path));
    }

    /**
     * Returns after the member has looked for what to delete: a container that may go has gone,
     * times times.
     */
    private static void looked(Bench b, CuratorFramework c, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            String path = b.path + "-sign-" + i;
            c.create().creatingParentContainersIfNeeded().forPath(path + "/a");
            c.delete().forPath(path + "/a");
            awaitGone(c, path);
        }
    }

    private static void levels(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        Events events = new Events();
        other.checkExists().usingWatcher((CuratorWatcher) e -> Watchers.add(b, events, e)).forPath(b.path);
        c.create().creatingParentContainersIfNeeded().forPath(b.path + "/x/y/z");
        events.expect("NodeCreated ");
        other.getData().usingWatcher((CuratorWatcher) e -> Watchers.add(b, events, e)).forPath(b.path);
        c.delete().forPath(b.path + "/x/y/z");
        awaitGone(other, b.path + "/x/y");
        awaitGone(other, b.path + "/x");
        awaitGone(other, b.path);
        events.expect("NodeDeleted ");
        // It can be made again.
        c.create().creatingParentContainersIfNeeded().forPath(b.path + "/x");
        Bench.that("it is there again", Bench.exists(other, b.path));
    }

    private static void lock(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        for (int i = 0; i < 2; i++) {
            InterProcessMutex lock = new InterProcessMutex(c, b.path + "/locks/one");
            Mutexes.gets(lock);
            looked(b, c, 1);
            Bench.that("a lock keeps its containers", Bench.exists(other, b.path + "/locks/one"));
            lock.release();
            awaitGone(other, b.path);
        }
    }

    private static void stay(Bench b) throws Exception {
        CuratorFramework c = b.client();
        c.createContainers(b.path + "/never");
        c.create().creatingParentContainersIfNeeded().forPath(b.path + "/used/a");
        c.create().creatingParentsIfNeeded().forPath(b.path + "/used/a/plain");
        c.delete().forPath(b.path + "/used/a/plain");
        looked(b, c, 3);
        Bench.that("one that never had a child stays", Bench.exists(c, b.path + "/never"));
        Bench.that("one that has a child stays", Bench.exists(c, b.path + "/used"));
        Bench.that("a node that is no container stays", Bench.exists(c, b.path + "/used/a"));
    }

    private static void ephemeral(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().creatingParentContainersIfNeeded().withMode(CreateMode.EPHEMERAL).forPath(b.path + "/group/a");
        looked(b, other, 2);
        Bench.equal("the owner", Bench.session(c), Bench.owner(other, b.path + "/group/a"));
        c.close();
        awaitGone(other, b.path);
    }

    private static void ttl(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().creatingParentsIfNeeded().forPath(b.path + "/a");
        Events events = new Events();
        other.checkExists().usingWatcher((CuratorWatcher) e -> Watchers.add(b, events, e)).forPath(b.path + "/ttl");
        Stat stat = new Stat();
        c.create().withTtl(TTL_MS).storingStatIn(stat).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(b.path + "/ttl", Bench.bytes("1"));
        String numbered = c.create().withTtl(TTL_MS).withMode(CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL).forPath(b.path + "/n-");
        Bench.that(numbered + " has a number", numbered.matches(".*/n-[0-9]{10}"));
        Bench.equal("the owner, as every client sees it", 0L, stat.getEphemeralOwner());
        c.create().withTtl(TTL_MS).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(b.path + "/parent");
        c.create().forPath(b.path + "/parent/child");
        events.expect("NodeCreated /ttl");
        other.checkExists().usingWatcher((CuratorWatcher) e -> Watchers.add(b, events, e)).forPath(b.path + "/ttl");
        // It does not belong to the session.
        c.close();
        events.expect("NodeDeleted /ttl");
        Bench.that("not before its time", System.currentTimeMillis() - stat.getMtime() >= TTL_MS);
        awaitGone(other, numbered);
        looked(b, other, 2);
        Bench.that("one with a child stays", Bench.exists(other, b.path + "/parent"));
        other.delete().forPath(b.path + "/parent/child");
        awaitGone(other, b.path + "/parent");
        Bench.that("the parent stays", Bench.exists(other, b.path));
    }

    private static void written(Bench b) throws Exception {
        CuratorFramework c = b.client();
        Stat created = new Stat();
        long lastMs;
        do {
            lastMs = write(c, b.path, created);
            // Where this machine stood still for the time to live, the node went rightly: once
            // more.
        } while (lastMs - created.getCtime() < 3 * TTL_MS);
        awaitGone(c, b.path);
    }

    /**
     * Writes until the node has lived for long or has gone, and returns when it was written last.
     */
    private static long write(CuratorFramework c, String path, Stat created) throws Exception {
        awaitGone(c, path);
        c.create().withTtl(TTL_MS).storingStatIn(created).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(path);
        long lastMs = created.getMtime();
        while (lastMs - created.getCtime() < 3 * TTL_MS) {
            try {
                lastMs = c.setData().forPath(path).getMtime();
            } catch (KeeperException.NoNodeException e) {
                Bench.that("it lives on after each write", System.currentTimeMillis() - lastMs >= TTL_MS);
                return lastMs;
            }
            Thread.sleep(20);
        }
        return lastMs;
    }

    private static PersistentTtlNode start(Bench b, CuratorFramework c) throws Exception {
        PersistentTtlNode node = b.keep(new PersistentTtlNode(c, b.path + "/node", TTL_MS, Bench.bytes("1")));
        node.start();
        Bench.that("it is created", node.waitForInitialCreate(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        return node;
    }

    private static void persistentTtl(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().forPath(b.path);
        PersistentTtlNode node = start(b, c);
        String touch = b.path + "/node/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME;
        Bench.await("the touch", () -> Bench.exists(other, touch));
        Bench.await("a touch that lives longer than its time", () -> {
            Stat stat = other.checkExists().forPath(touch);
            return stat != null && stat.getMtime() - stat.getCtime() > 2 * TTL_MS;
        });
        Bench.await("the node", () -> Bench.exists(other, b.path + "/node"));
        node.setData(Bench.bytes("2"));
        Bench.awaitEqual("the data", "2", () -> Bench.text(other.getData().forPath(b.path + "/node")));
        node.close();
        c.close();
        awaitGone(other, touch);
        awaitGone(other, b.path + "/node");
    }

    private static void persistentTtlDeleted(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().forPath(b.path);
        start(b, c);
        Bench.await("the node", () -> Bench.exists(other, b.path + "/node"));
        long czxid = other.checkExists().forPath(b.path + "/node").getCzxid();
        other.delete().deletingChildrenIfNeeded().forPath(b.path + "/node");
        Bench.await("a new node", () -> {
            Stat stat = other.checkExists().forPath(b.path + "/node");
            return stat != null && stat.getCzxid() > czxid;
        });
        Bench.expire(c);
        Bench.await("the touch of the new session", () -> {
            Stat stat = other.checkExists().forPath(b.path + "/node/" + PersistentTtlNode.DEFAULT_CHILD_NODE_NAME);
            return stat != null && stat.getVersion() > 0;
        });
    }

    private static void transactions(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.transaction().forOperations(
                c.transactionOp().create().withMode(CreateMode.CONTAINER).forPath(b.path),
                c.transactionOp().create().withTtl(TTL_MS).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(b.path + "/ttl"),
                c.transactionOp().create().forPath(b.path + "/plain"));
        Bench.that("it is done", List.of("plain", "ttl").containsAll(c.getChildren().forPath(b.path)));
        awaitGone(other, b.path + "/ttl");
        Bench.that("a container with a child stays", Bench.exists(other, b.path));
        c.transaction().forOperations(c.transactionOp().delete().forPath(b.path + "/plain"));
        awaitGone(other, b.path);
    }
}
