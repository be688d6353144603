import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.BackgroundCallback;
import org.apache.curator.framework.api.CuratorEvent;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.data.Stat;

/**
 * Operations in the background, and the extras of the operations themselves. (Curator's other
 * asynchronous interface, curator-x-async, is a layer above this one, and no package of Debian has
 * it.)
 */
final class Background {
    private Background() {}

    static void add(Suite s) {
        s.check("Background/answers come in order", Background::order);
        s.check("Background/errors are answers", Background::errors);
        s.check("Background/creates with all that it can", Background::creates);
        s.check("Background/deletes and sets with all that they can", Background::deletesAndSets);
        s.check("Background/idempotent operations", Background::idempotent);
    }

    private static void order(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().forPath(b.path);
        final int n = 300;
        Events events = new Events();
        BackgroundCallback tell = (client, e) -> events.add(e.getType() + " " + e.getResultCode() + " " + e.getContext());
        for (int i = 0; i < n; i++) {
            c.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).inBackground(tell, i).forPath(b.path + "/n-");
            c.getChildren().inBackground((client, e) -> events.add("CHILDREN " + e.getChildren().size())).forPath(b.path);
        }
        for (int i = 0; i < n; i++) {
            events.expect("CREATE 0 " + i, "CHILDREN " + (i + 1));
        }
        Bench.sync(other);
        Bench.equal("how many another client sees", n, other.getChildren().forPath(b.path).size());
        Bench.that("the last number", Bench.exists(other, b.path + "/n-" + String.format("%010d", n - 1)));
    }

    private static CuratorEvent event(CompletableFuture<CuratorEvent> f) throws Exception {
        return Bench.get(f);
    }

    private static void errors(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CompletableFuture<CuratorEvent> get = new CompletableFuture<>();
        CompletableFuture<CuratorEvent> set = new CompletableFuture<>();
        CompletableFuture<CuratorEvent> delete = new CompletableFuture<>();
        CompletableFuture<CuratorEvent> create = new CompletableFuture<>();
        CompletableFuture<CuratorEvent> exists = new CompletableFuture<>();
        c.create().forPath(b.path);
        c.getData().inBackground((client, e) -> get.complete(e)).forPath(b.path + "/no");
        c.setData().withVersion(5).inBackground((client, e) -> set.complete(e)).forPath(b.path);
        c.delete().inBackground((client, e) -> delete.complete(e)).forPath(b.path + "/no");
        c.create().inBackground((client, e) -> create.complete(e)).forPath(b.path);
        c.checkExists().inBackground((client, e) -> exists.complete(e)).forPath(b.path + "/no");
        Bench.equal("get", Code.NONODE, Code.get(event(get).getResultCode()));
        Bench.equal("set", Code.BADVERSION, Code.get(event(set).getResultCode()));
        Bench.equal("delete", Code.NONODE, Code.get(event(delete).getResultCode()));
        Bench.equal("create", Code.NODEEXISTS, Code.get(event(create).getResultCode()));
        Bench.equal("exists", Code.NONODE, Code.get(event(exists).getResultCode()));
        Bench.equal("exists", null, event(exists).getStat());
    }

    private static void creates(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        Stat stat = new Stat();
        c.create().storingStatIn(stat).creatingParentsIfNeeded().forPath(b.path + "/x/y/z", Bench.bytes("1"));
        Bench.equal("the stat", c.checkExists().forPath(b.path + "/x/y/z"), stat);
        Bench.equal("the owner of a parent", 0L, Bench.owner(c, b.path + "/x"));
        c.create().orSetData().forPath(b.path + "/x/y/z", Bench.bytes("2"));
        c.create().orSetData().forPath(b.path + "/x/new", Bench.bytes("3"));
        c.create().compressed().forPath(b.path + "/compressed", Bench.bytes("packed"));
        String one = c.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(b.path + "/p-");
        Bench.that(one + " is protected", one.matches(".*/_c_[0-9a-f-]{36}-p-[0-9]{10}"));
        CompletableFuture<CuratorEvent> done = new CompletableFuture<>();
        c.create().creatingParentContainersIfNeeded().withMode(CreateMode.EPHEMERAL).inBackground((client, e) -> done.complete(e))
                .forPath(b.path + "/c1/c2/e", Bench.bytes("4"));
        Bench.equal("the code", 0, event(done).getResultCode());
        Bench.sync(other);
        Bench.equal("the data", "2", Bench.text(other.getData().forPath(b.path + "/x/y/z")));
        Bench.equal("the data", "3", Bench.text(other.getData().forPath(b.path + "/x/new")));
        Bench.equal("the data", "packed", Bench.text(other.getData().decompressed().forPath(b.path + "/compressed")));
        Bench.equal("the owner", Bench.session(c), Bench.owner(other, b.path + "/c1/c2/e"));
        c.close();
        Bench.await("the end of the ephemerals", () -> !Bench.exists(other, one) && !Bench.exists(other, b.path + "/c1/c2/e"));
    }

    private static void deletesAndSets(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        List<String> names = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            names.add(c.create().creatingParentsIfNeeded().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(b.path + "/t/s-"));
        }
        c.delete().guaranteed().forPath(names.get(0));
        c.delete().quietly().forPath(names.get(0));
        c.setData().compressed().forPath(names.get(1), Bench.bytes("packed"));
        Stat stat = c.setData().withVersion(1).forPath(names.get(1), Bench.bytes("1"));
        Bench.equal("the version", 2, stat.getVersion());
        Bench.sync(other);
        Bench.that("one is deleted", !Bench.exists(other, names.get(0)));
        Bench.equal("the data", "1", Bench.text(other.getData().forPath(names.get(1))));
        Bench.equal("the stat", stat, other.checkExists().forPath(names.get(1)));
        c.delete().guaranteed().deletingChildrenIfNeeded().forPath(b.path);
        Bench.sync(other);
        Bench.that("all is deleted", !Bench.exists(other, b.path));
    }

    private static void idempotent(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        for (int i = 0; i < 2; i++) {
            c.create().idempotent().forPath(b.path, Bench.bytes("0"));
        }
        for (int i = 0; i < 2; i++) {
            c.setData().idempotent().withVersion(0).forPath(b.path, Bench.bytes("1"));
        }
        Bench.sync(other);
        Bench.equal("the version", 1, other.checkExists().forPath(b.path).getVersion());
        for (int i = 0; i < 2; i++) {
            c.delete().idempotent().withVersion(1).forPath(b.path);
        }
        Bench.sync(other);
        Bench.that("it is deleted", !Bench.exists(other, b.path));
    }
}
