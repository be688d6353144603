import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorEvent;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.KeeperException.Code;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.data.Stat;

/** transaction(): all of it at once, or none of it. */
final class Transactions {
    private Transactions() {}

    static void add(Suite s) {
        s.check("Transactions/do all", Transactions::all);
        s.check("Transactions/do nothing if one part fails", Transactions::none);
        s.check("Transactions/in the background", Transactions::background);
        s.check("Transactions/create nodes of every kind", Transactions::kinds);
        s.check("Transactions/are seen whole", Transactions::whole);
    }

    private static CuratorOp create(CuratorFramework c, String path) throws Exception {
        return c.transactionOp().create().forPath(path, Bench.bytes("new"));
    }

    private static void all(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.create().forPath(b.path);
        c.create().forPath(b.path + "/set");
        c.create().forPath(b.path + "/gone");
        List<CuratorTransactionResult> results = c.transaction().forOperations(
                create(c, b.path + "/new"),
                create(c, b.path + "/new/child"),
                c.transactionOp().setData().withVersion(0).forPath(b.path + "/set", Bench.bytes("1")),
                c.transactionOp().check().withVersion(1).forPath(b.path + "/set"),
                c.transactionOp().delete().withVersion(0).forPath(b.path + "/gone"));
        StringBuilder types = new StringBuilder();
        for (CuratorTransactionResult r : results) {
            types.append(r.getType()).append(' ').append(r.getError()).append(' ').append(r.getResultPath()).append(", ");
        }
        Bench.equal("the results", "CREATE 0 " + b.path + "/new, CREATE 0 " + b.path + "/new/child, "
                + "SET_DATA 0 null, CHECK 0 null, DELETE 0 null, ", types.toString());
        Bench.sync(other);
        Bench.equal("the children", 2, other.getChildren().forPath(b.path).size());
        Bench.that("one is deleted", !Bench.exists(other, b.path + "/gone"));
        Bench.equal("the data", "1", Bench.text(other.getData().forPath(b.path + "/set")));
        Stat set = other.checkExists().forPath(b.path + "/set");
        Bench.equal("the stat", set, results.get(2).getResultStat());
        Bench.equal("the zxid of it all", set.getMzxid(), other.checkExists().forPath(b.path + "/new/child").getCzxid());
        Bench.equal("the zxid of it all", set.getMzxid(), other.checkExists().forPath(b.path).getPzxid());
    }

    private static void none(Bench b) throws Exception {
        CuratorFramework c = b.client();
        c.create().forPath(b.path);
        c.create().forPath(b.path + "/set");
        Stat before = c.checkExists().forPath(b.path);
        KeeperException e = Bench.fails(KeeperException.BadVersionException.class, () -> c.transaction().forOperations(
                create(c, b.path + "/new"),
                c.transactionOp().setData().forPath(b.path + "/set", Bench.bytes("1")),
                c.transactionOp().check().withVersion(7).forPath(b.path + "/set"),
                c.transactionOp().delete().forPath(b.path + "/set")));
        StringBuilder codes = new StringBuilder();
        for (OpResult r : e.getResults()) {
            codes.append(Code.get(((OpResult.ErrorResult) r).getErr())).append(' ');
        }
        Bench.equal("the results", "OK OK BADVERSION RUNTIMEINCONSISTENCY ", codes.toString());
        Bench.that("nothing is created", !Bench.exists(c, b.path + "/new"));
        Bench.equal("the data", "", Bench.text(c.getData().forPath(b.path + "/set")));
        Bench.equal("the parent", before, c.checkExists().forPath(b.path));
        Bench.fails(KeeperException.NoNodeException.class, () -> c.transaction().forOperations(create(c, b.path + "/no/node")));
        Bench.fails(KeeperException.NodeExistsException.class, () -> c.transaction().forOperations(
                create(c, b.path + "/new"), create(c, b.path + "/set")));
        Bench.fails(KeeperException.NotEmptyException.class, () -> c.transaction().forOperations(
                create(c, b.path + "/new"), c.transactionOp().delete().forPath(b.path)));
        Bench.equal("the parent", before, c.checkExists().forPath(b.path));
    }

    private static CuratorEvent inBackground(CuratorFramework c, CuratorOp... ops) throws Exception {
        CompletableFuture<CuratorEvent> done = new CompletableFuture<>();
        c.transaction().inBackground((client, event) -> done.complete(event)).forOperations(ops);
        return Bench.get(done);
    }

    private static void background(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        CuratorEvent good = inBackground(c, create(c, b.path), create(c, b.path + "/a"));
        Bench.equal("the code", Code.OK.intValue(), good.getResultCode());
        Bench.equal("how many results", 2, good.getOpResults().size());
        Bench.sync(other);
        Bench.that("it is done", Bench.exists(other, b.path + "/a"));
        CuratorEvent bad = inBackground(c, create(c, b.path + "/b"), create(c, b.path + "/a"));
        Bench.equal("the code", Code.NODEEXISTS.intValue(), bad.getResultCode());
        Bench.sync(other);
        Bench.that("nothing is done", !Bench.exists(other, b.path + "/b"));
    }

    private static void kinds(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        List<CuratorTransactionResult> results = c.transaction().forOperations(
                create(c, b.path),
                c.transactionOp().create().withMode(CreateMode.EPHEMERAL).forPath(b.path + "/e"),
                c.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(b.path + "/s-"),
                c.transactionOp().create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(b.path + "/s-"),
                c.transactionOp().create().withMode(CreateMode.CONTAINER).forPath(b.path + "/c"));
        Bench.equal("the first number", b.path + "/s-0000000001", results.get(2).getResultPath());
        Bench.equal("the second number", b.path + "/s-0000000002", results.get(3).getResultPath());
        Bench.sync(other);
        Bench.equal("the owner of an ephemeral", Bench.session(c), Bench.owner(other, b.path + "/s-0000000002"));
        c.close();
        Bench.await("the end of the ephemerals", () -> other.getChildren().forPath(b.path).size() == 2);
        Bench.that("the others stay", Bench.exists(other, b.path + "/s-0000000001") && Bench.exists(other, b.path + "/c"));
    }

    /** Two nodes that are always changed together are never seen different. */
    private static void whole(Bench b) throws Exception {
        CuratorFramework c = b.client();
        CuratorFramework other = b.client();
        c.transaction().forOperations(create(c, b.path), create(c, b.path + "/a"), create(c, b.path + "/b"));
        Bench.sync(other);
        Future<Void> writer = b.later(() -> {
            for (int i = 0; i < 100; i++) {
                c.transaction().forOperations(
                        c.transactionOp().setData().forPath(b.path + "/a", Bench.bytes("" + i)),
                        c.transactionOp().setData().forPath(b.path + "/b", Bench.bytes("" + i)));
            }
            return null;
        });
        while (!writer.isDone()) {
            long a = other.checkExists().forPath(b.path + "/a").getMzxid();
            long later = other.checkExists().forPath(b.path + "/b").getMzxid();
            Bench.that("what is read later is not older", later >= a);
            long z = other.checkExists().forPath(b.path + "/a").getMzxid();
            Bench.that("what is read later is not older", z >= later);
        }
        Bench.get(writer);
        Bench.sync(other);
        Stat a = other.checkExists().forPath(b.path + "/a");
        Stat last = other.checkExists().forPath(b.path + "/b");
        Bench.equal("the version", 100, last.getVersion());
        Bench.equal("the zxid", a.getMzxid(), last.getMzxid());
    }
}
