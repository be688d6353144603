import java.util.Map;
import java.util.TreeMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.Stat;

/** Nodes that stay as long as their client lives, whatever becomes of them. */
final class Nodes {
    private Nodes() {}

    static void add(Suite s) {
        s.check("Nodes/PersistentNode goes when it is closed", Nodes::closed);
        s.check("Nodes/PersistentNode goes with its client", Nodes::clientClosed);
        s.check("Nodes/PersistentNode comes back after it was deleted", Nodes::deleted);
        s.check("Nodes/PersistentNode comes back after its session expired", Nodes::expired);
        s.check("Nodes/PersistentNode has the data it was given last", Nodes::data);
        s.check("Nodes/PersistentNode of each kind", Nodes::kinds);
        s.check("Nodes/GroupMember", Nodes::group);
        s.check("Nodes/GroupMember comes back after its session expired", Nodes::groupExpired);
    }

    private static PersistentNode start(Bench b, CuratorFramework c, CreateMode mode, String path) throws Exception {
        PersistentNode node = b.keep(new PersistentNode(c, mode, mode.isSequential(), path, Bench.bytes("1")));
        node.start();
        Bench.that("it is created", node.waitForInitialCreate(Bench.PATIENCE_MS, java.util.concurrent.TimeUnit.MILLISECONDS));
        return node;
    }

    private static PersistentNode start(Bench b, CuratorFramework c) throws Exception {
        return start(b, c, CreateMode.EPHEMERAL, b.path + "/node");
    }

    private static void awaitOwner(CuratorFramework other, CuratorFramework owner, String path) throws Exception {
        Bench.awaitEqual("the owner", Bench.session(owner), () -> Bench.owner(other, path));
    }

    private static void closed(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        PersistentNode node = start(b, owner);
        awaitOwner(other, owner, b.path + "/node");
        node.close();
        Bench.await("its end", () -> !Bench.exists(other, b.path + "/node"));
        Bench.that("the client lives", owner.getZookeeperClient().isConnected());
    }

    private static void clientClosed(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        start(b, owner);
        awaitOwner(other, owner, b.path + "/node");
        owner.close();
        Bench.await("its end", () -> !Bench.exists(other, b.path + "/node"));
    }

    private static void deleted(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        PersistentNode node = start(b, owner);
        Events created = new Events();
        node.getListenable().addListener(created::add);
        awaitOwner(other, owner, b.path + "/node");
        for (int i = 0; i < 3; i++) {
            long before = other.checkExists().forPath(b.path + "/node").getCzxid();
            other.delete().forPath(b.path + "/node");
            Bench.await("a new node", () -> {
                Stat stat = other.checkExists().forPath(b.path + "/node");
                return stat != null && stat.getCzxid() > before && stat.getEphemeralOwner() == Bench.session(owner);
            });
            created.expect(b.path + "/node");
        }
    }

    private static void expired(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        start(b, owner);
        long before = Bench.session(owner);
        awaitOwner(other, owner, b.path + "/node");
        Bench.expire(owner);
        Bench.that("it is another session", before != Bench.session(owner));
        awaitOwner(other, owner, b.path + "/node");
        Bench.equal("the data", "1", Bench.text(other.getData().forPath(b.path + "/node")));
    }

    private static void data(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        PersistentNode node = start(b, owner);
        node.setData(Bench.bytes("2"));
        Bench.await("the node", () -> Bench.exists(other, b.path + "/node"));
        Bench.awaitEqual("the data", "2", () -> Bench.text(other.getData().forPath(b.path + "/node")));
        other.delete().forPath(b.path + "/node");
        Bench.await("the node", () -> Bench.exists(other, b.path + "/node"));
        Bench.equal("the data of the new one", "2", Bench.text(other.getData().forPath(b.path + "/node")));
    }

    private static void kinds(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        CuratorFramework other = b.client();
        for (CreateMode mode : new CreateMode[] {
            CreateMode.EPHEMERAL_SEQUENTIAL, CreateMode.PERSISTENT, CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.CONTAINER,
        }) {
            PersistentNode node = start(b, owner, mode, b.path + "/" + mode);
            Bench.sync(other);
            String first = node.getActualPath();
            long czxid = other.checkExists().forPath(first).getCzxid();
            other.delete().forPath(first);
            Bench.await("a new node of kind " + mode, () -> {
                String now = node.getActualPath();
                Stat stat = now == null ? null : other.checkExists().forPath(now);
                return stat != null && stat.getCzxid() > czxid;
            });
            node.close();
            Bench.awaitEqual("what is left", "[]", () -> other.getChildren().forPath(b.path).toString());
        }
    }

    private static Map<String, String> members(GroupMember m) {
        Map<String, String> members = new TreeMap<>();
        m.getCurrentMembers().forEach((id, data) -> members.put(id, Bench.text(data)));
        return members;
    }

    private static GroupMember join(Bench b, CuratorFramework c, String id) {
        GroupMember m = b.keep(new GroupMember(c, b.path, id, Bench.bytes("data of " + id)));
        m.start();
        return m;
    }

    private static void group(Bench b) throws Exception {
        GroupMember x = join(b, b.client(), "x");
        CuratorFramework second = b.client();
        GroupMember y = join(b, second, "y");
        for (GroupMember m : new GroupMember[] {x, y}) {
            Bench.awaitEqual("the members", Map.of("x", "data of x", "y", "data of y"), () -> members(m));
        }
        x.setThisData(Bench.bytes("new"));
        Bench.awaitEqual("the members", Map.of("x", "new", "y", "data of y"), () -> members(y));
        second.close();
        Bench.awaitEqual("the members", Map.of("x", "new"), () -> members(x));
        GroupMember z = join(b, b.client(), "z");
        Bench.awaitEqual("the members", Map.of("x", "new", "z", "data of z"), () -> members(x));
        x.close();
        Bench.awaitEqual("the members", Map.of("z", "data of z"), () -> members(z));
    }

    private static void groupExpired(Bench b) throws Exception {
        CuratorFramework first = b.client();
        CuratorFramework other = b.client();
        GroupMember x = join(b, first, "x");
        GroupMember y = join(b, b.client(), "y");
        Bench.awaitEqual("the members", Map.of("x", "data of x", "y", "data of y"), () -> members(y));
        awaitOwner(other, first, b.path + "/x");
        Bench.expire(first);
        awaitOwner(other, first, b.path + "/x");
        for (GroupMember m : new GroupMember[] {x, y}) {
            Bench.awaitEqual("the members", Map.of("x", "data of x", "y", "data of y"), () -> members(m));
        }
    }
}
