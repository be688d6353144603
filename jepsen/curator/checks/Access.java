import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/** Who may do what, and namespaces. */
final class Access {
    private Access() {}

    static void add(Suite s) {
        s.check("Access/what belongs to one others cannot touch", Access::acl);
        s.check("Access/survives the end of the session", Access::expired);
        s.check("Access/namespaces", Access::namespaces);
    }

    private static final ACLProvider CREATOR = new ACLProvider() {
        @Override
        public List<ACL> getDefaultAcl() {
            return ZooDefs.Ids.CREATOR_ALL_ACL;
        }

        @Override
        public List<ACL> getAclForPath(String path) {
            return ZooDefs.Ids.CREATOR_ALL_ACL;
        }
    };

    private static CuratorFramework as(Bench b, String who) throws Exception {
        return b.client(builder -> builder.authorization("digest", Bench.bytes(who)).aclProvider(CREATOR));
    }

    private static void acl(Bench b) throws Exception {
        CuratorFramework alice = as(b, "alice:secret");
        CuratorFramework also = as(b, "alice:secret");
        CuratorFramework bob = as(b, "bob:secret");
        CuratorFramework nobody = b.client();
        alice.create().forPath(b.path, Bench.bytes("0"));
        for (CuratorFramework c : List.of(also, bob, nobody)) {
            Bench.sync(c);
        }
        Bench.equal("the data", "0", Bench.text(also.getData().forPath(b.path)));
        for (CuratorFramework c : List.of(bob, nobody)) {
            Bench.fails(KeeperException.NoAuthException.class, () -> c.getData().forPath(b.path));
            Bench.fails(KeeperException.NoAuthException.class, () -> c.setData().forPath(b.path));
            Bench.fails(KeeperException.NoAuthException.class, () -> c.create().forPath(b.path + "/a"));
            Bench.fails(KeeperException.NoAuthException.class, () -> c.setACL().withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath(b.path));
        }
        ACL acl = alice.getACL().forPath(b.path).get(0);
        Bench.equal("who", "digest", acl.getId().getScheme());
        Bench.that("who", acl.getId().getId().startsWith("alice:"));
        Stat stat = alice.setACL().withVersion(0).withACL(ZooDefs.Ids.READ_ACL_UNSAFE).forPath(b.path);
        Bench.equal("the ACL's version", 1, stat.getAversion());
        Bench.sync(bob);
        Bench.equal("the data", "0", Bench.text(bob.getData().forPath(b.path)));
        Bench.fails(KeeperException.NoAuthException.class, () -> bob.setData().forPath(b.path));
    }

    private static void expired(Bench b) throws Exception {
        CuratorFramework alice = as(b, "alice:secret");
        alice.create().forPath(b.path);
        Bench.expire(alice);
        // Its identity is told again, to each new session.
        alice.setData().forPath(b.path, Bench.bytes("1"));
        Bench.equal("the data", "1", Bench.text(alice.getData().forPath(b.path)));
    }

    private static void namespaces(Bench b) throws Exception {
        CuratorFramework whole = b.client();
        CuratorFramework part = b.client(builder -> builder.namespace(b.path.substring(1)));
        part.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath("/a/b", Bench.bytes("1"));
        Bench.sync(whole);
        Bench.equal("the data", "1", Bench.text(whole.getData().forPath(b.path + "/a/b")));
        Bench.equal("the same, seen from the namespace", "1",
                Bench.text(whole.usingNamespace(b.path.substring(1) + "/a").getData().forPath("/b")));
        Events events = new Events();
        part.getChildren().usingWatcher((CuratorWatcher) e -> events.add(e.getPath())).forPath("/a");
        whole.create().forPath(b.path + "/a/c");
        events.expect("/a");
        Bench.equal("the root", "[a]", part.getChildren().forPath("/").toString());
    }
}
