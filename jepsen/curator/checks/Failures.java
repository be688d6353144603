import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.zookeeper.CreateMode;

/** The recipes while members are killed and started again, and clients move from one to another. */
final class Failures {
    private Failures() {}

    static void add(Suite s) {
        s.rough("Failures/caches of a client that moves see what they missed", Failures::cachesMove);
        s.rough("Failures/caches go on when all members were down", Failures::cachesRestart);
        s.rough("Failures/a PersistentWatcher of a client that moves", Failures::watcherMoves);
        s.rough("Failures/ephemerals and a lock of a client that moves", Failures::holderMoves);
        s.rough("Failures/locks, groups and counts go on while each member is killed", Failures::goOn);
    }

    /**
     * The states that the client is told from now on, if not a late one of its first connection.
     */
    private static Events states(CuratorFramework c) {
        Events states = new Events();
        c.getConnectionStateListenable().addListener((client, state) -> states.add(state.toString()));
        return states;
    }

    private static void moved(Events states) throws Exception {
        states.until(ConnectionState.SUSPENDED.toString());
        states.until(ConnectionState.RECONNECTED.toString());
    }

    private static void cachesMove(Bench b) throws Exception {
        CuratorFramework reader = b.client();
        CuratorFramework second = b.clientBeside(reader);
        String address = Bench.member(reader);
        CuratorFramework writer = b.clientAt(b.membersBut(address)[0]);
        writer.create().forPath(b.path);
        writer.create().forPath(b.path + "/keep", Bench.bytes("1"));
        writer.create().forPath(b.path + "/gone", Bench.bytes("1"));
        Caches.All all = new Caches.All(b, reader, second);
        all.await(Map.of("", "", "/keep", "1", "/gone", "1"));
        Events states = states(reader);
        Events others = states(second);
        long session = Bench.session(reader);
        b.harness.kill(address);
        try {
            writer.setData().forPath(b.path + "/keep", Bench.bytes("2"));
            writer.delete().quietly().forPath(b.path + "/gone");
            writer.create().orSetData().forPath(b.path + "/new", Bench.bytes("1"));
            moved(states);
            moved(others);
            all.await(Map.of("", "", "/keep", "2", "/new", "1"));
            writer.setData().forPath(b.path + "/keep", Bench.bytes("3"));
            writer.delete().quietly().forPath(b.path + "/new");
            all.await(Map.of("", "", "/keep", "3"));
            Bench.awaitEqual("what was told", "1 2 3", () -> all.told("/keep"));
            Bench.awaitEqual("what was told", "1 deleted", () -> all.told("/gone"));
            Bench.awaitEqual("what was told", "1 deleted", () -> all.told("/new"));
            Bench.equal("the session", session, Bench.session(reader));
        } finally {
            b.harness.start(address);
        }
    }

    private static void cachesRestart(Bench b) throws Exception {
        CuratorFramework reader = b.client();
        CuratorFramework writer = b.client();
        writer.create().forPath(b.path);
        writer.create().forPath(b.path + "/keep", Bench.bytes("1"));
        CuratorFramework second = b.client();
        Caches.All all = new Caches.All(b, reader, second);
        all.await(Map.of("", "", "/keep", "1"));
        Events states = states(reader);
        Events others = states(second);
        String[] addresses = b.servers.split(",");
        for (String a : addresses) {
            b.harness.kill(a);
        }
        b.harness.start(addresses);
        moved(states);
        moved(others);
        writer.setData().forPath(b.path + "/keep", Bench.bytes("2"));
        writer.create().orSetData().forPath(b.path + "/new", Bench.bytes("1"));
        all.await(Map.of("", "", "/keep", "2", "/new", "1"));
        writer.delete().quietly().forPath(b.path + "/new");
        all.await(Map.of("", "", "/keep", "2"));
        Bench.awaitEqual("what was told", "1 2", () -> all.told("/keep"));
        Bench.awaitEqual("what was told", "1 deleted", () -> all.told("/new"));
    }

    private static void watcherMoves(Bench b) throws Exception {
        CuratorFramework watching = b.client();
        String address = Bench.member(watching);
        CuratorFramework writer = b.clientAt(b.membersBut(address)[0]);
        Events events = new Events();
        Events ready = new Events();
        PersistentWatcher w = b.keep(new PersistentWatcher(watching, b.path, true));
        w.getResetListenable().addListener(() -> ready.add("ready"));
        w.getListenable().addListener(e -> Watchers.add(b, events, e));
        w.start();
        ready.expect("ready");
        writer.create().forPath(b.path);
        events.expect("NodeCreated ");
        Events states = states(watching);
        b.harness.kill(address);
        try {
            moved(states);
            ready.expect("ready");
            // With a leader again, nothing of what follows is done twice.
            Bench.sync(writer);
            writer.create().forPath(b.path + "/a");
            writer.create().forPath(b.path + "/a/b");
            writer.setData().forPath(b.path + "/a");
            writer.delete().forPath(b.path + "/a/b");
            events.expect("NodeCreated /a", "NodeCreated /a/b", "NodeDataChanged /a", "NodeDeleted /a/b");
            events.none();
        } finally {
            b.harness.start(address);
        }
    }

    private static void holderMoves(Bench b) throws Exception {
        CuratorFramework holder = b.client();
        String address = Bench.member(holder);
        CuratorFramework other = b.clientAt(b.membersBut(address)[0]);
        PersistentNode node = b.keep(new PersistentNode(holder, CreateMode.EPHEMERAL, false, b.path + "/node", new byte[0]));
        node.start();
        Bench.that("it is created", node.waitForInitialCreate(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        InterProcessMutex lock = new InterProcessMutex(holder, b.path + "/lock");
        Mutexes.gets(lock);
        Events events = new Events();
        LeaderLatch latch = Leaders.latch(b, holder, "one", events);
        Bench.that("it leads", latch.await(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Bench.sync(other);
        long created = other.checkExists().forPath(b.path + "/node").getCzxid();
        long session = Bench.session(holder);
        Events states = states(holder);
        b.harness.kill(address);
        try {
            moved(states);
            Bench.equal("the session", session, Bench.session(holder));
            InterProcessMutex theirs = new InterProcessMutex(other, b.path + "/lock");
            Bench.that("the lock is held", !Mutexes.tries(theirs));
            Bench.equal("the node", created, other.checkExists().forPath(b.path + "/node").getCzxid());
            lock.release();
            Mutexes.gets(theirs);
            // A latch stops leading when its connection is suspended, and leads again when it is
            // back.
            events.until("one leads");
            Bench.await("it leads again", latch::hasLeadership);
            holder.close();
            Bench.await("the end of the node", () -> !Bench.exists(other, b.path + "/node"));
        } finally {
            b.harness.start(address);
        }
    }

    /** Every member is killed once while clients take turns in a lock. */
    private static void goOn(Bench b) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger turns = new AtomicInteger();
        AtomicBoolean enough = new AtomicBoolean();
        List<Future<Void>> all = new ArrayList<>();
        List<GroupMember> group = new ArrayList<>();
        List<SharedCount> counts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            CuratorFramework c = b.client();
            GroupMember m = b.keep(new GroupMember(c, b.path + "/group", "m" + i));
            m.start();
            group.add(m);
            SharedCount count = b.keep(new SharedCount(c, b.path + "/count", 0));
            count.start();
            counts.add(count);
            InterProcessMutex lock = new InterProcessMutex(c, b.path + "/lock");
            all.add(b.later(() -> {
                while (!enough.get()) {
                    Mutexes.gets(lock);
                    Bench.equal("how many have the lock", 1, inside.incrementAndGet());
                    turns.incrementAndGet();
                    inside.decrementAndGet();
                    lock.release();
                }
                return null;
            }));
        }
        for (String address : b.servers.split(",")) {
            int before = turns.get();
            Bench.await("turns", () -> turns.get() > before + 5);
            b.harness.kill(address);
            int then = turns.get();
            Bench.await("turns while a member is down", () -> turns.get() > then + 5);
            b.harness.start(address);
        }
        enough.set(true);
        for (Future<Void> f : all) {
            Bench.get(f);
        }
        for (GroupMember m : group) {
            Bench.awaitEqual("the members", 3, () -> m.getCurrentMembers().size());
        }
        counts.get(0).setCount(5);
        for (SharedCount count : counts) {
            Bench.awaitEqual("the count", 5, count::getCount);
        }
    }
}
