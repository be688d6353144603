import java.util.Arrays;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.quorum.flexible.QuorumVerifier;

/**
 * /zookeeper/config, which Curator reads and watches in every client: what it learns from it must
 * be true.
 */
final class Ensemble {
    private Ensemble() {}

    static void add(Suite s) {
        s.check("Ensemble/the configuration names the members", Ensemble::members);
        s.check("Ensemble/the configuration cannot be written", Ensemble::readOnly);
        s.rough("Ensemble/a client that was told of one member finds the others", Ensemble::others);
    }

    static void addAlone(Suite s) {
        s.check("Ensemble/the configuration of one member", Ensemble::alone);
    }

    private static TreeSet<String> set(String servers) {
        return new TreeSet<>(Arrays.asList(servers.split(",")));
    }

    private static void members(Bench b) throws Exception {
        CuratorFramework c = b.client();
        Stat stat = new Stat();
        String config = Bench.text(c.getConfig().storingStatIn(stat).forEnsemble());
        Bench.that("a version in " + config, config.matches("(?s).*\nversion=[0-9a-f]+"));
        Bench.equal("members in " + config, 3L, config.lines().filter(l -> l.matches("server\\.[123]=.*:participant;.*")).count());
        Bench.awaitEqual("the members that the client knows", 3, () -> {
            QuorumVerifier v = c.getCurrentConfig();
            return v == null ? 0 : v.getVotingMembers().size();
        });
        Bench.awaitEqual("the connection string", set(b.servers), () -> set(c.getZookeeperClient().getCurrentConnectionString()));
        Events events = new Events();
        Bench.equal("the same, watched", config, Bench.text(c.getConfig().usingWatcher(
                (CuratorWatcher) e -> events.add(e.toString())).forEnsemble()));
        events.none();
    }

    private static void readOnly(Bench b) throws Exception {
        CuratorFramework c = b.client();
        Bench.fails(KeeperException.NoAuthException.class, () -> c.setData().forPath("/zookeeper/config", Bench.bytes("x")));
        Bench.fails(KeeperException.class, () -> c.delete().forPath("/zookeeper/config"));
    }

    private static void others(Bench b) throws Exception {
        String address = b.servers.split(",")[0];
        CuratorFramework c = b.client(builder -> builder.connectString(address));
        Bench.equal("the member", address, Bench.member(c));
        long session = Bench.session(c);
        Bench.awaitEqual("the connection string", set(b.servers), () -> set(c.getZookeeperClient().getCurrentConnectionString()));
        b.harness.kill(address);
        try {
            c.create().orSetData().forPath(b.path, Bench.bytes("1"));
            Bench.that("it is another member", !Bench.member(c).equals(address));
            Bench.equal("the session", session, Bench.session(c));
        } finally {
            b.harness.start(address);
        }
    }

    private static void alone(Bench b) throws Exception {
        CuratorFramework c = b.client();
        String config = Bench.text(c.getConfig().forEnsemble());
        Bench.that("no members in " + config, !config.contains("server."));
        c.create().forPath(b.path, Bench.bytes("1"));
        Bench.equal("the connection string", b.servers, c.getZookeeperClient().getCurrentConnectionString());
        Bench.expire(c);
        Bench.equal("the data", "1", Bench.text(c.getData().forPath(b.path)));
        Bench.equal("the connection string", b.servers, c.getZookeeperClient().getCurrentConnectionString());
    }
}
