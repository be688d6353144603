import java.util.Set;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.WatcherRemoveCuratorFramework;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;

/** Watches of every kind: what they tell, in which order, and that they end. */
final class Watchers {
    private Watchers() {}

    static void add(Suite s) {
        s.check("Watchers/PersistentWatcher, recursive", Watchers::recursive);
        s.check("Watchers/PersistentWatcher, of one node", Watchers::single);
        s.check("Watchers/PersistentWatcher goes on after its session expired", Watchers::expired);
        s.check("Watchers/are told once", Watchers::once);
        s.check("Watchers/added with a mode and removed", Watchers::added);
        s.check("Watchers/removed with their framework", Watchers::removedTogether);
    }

    /**
     * An event of a node, by its name below the check's; the others are changes of the connection.
     */
    static void add(Bench b, Events events, WatchedEvent e) {
        if (e.getPath() != null) {
            String path = e.getPath();
            events.add(e.getType() + " " + (path.startsWith(b.path) ? path.substring(b.path.length()) : path));
        }
    }

    private static PersistentWatcher watch(Bench b, CuratorFramework c, boolean recursive, Events events) throws Exception {
        PersistentWatcher w = b.keep(new PersistentWatcher(c, b.path, recursive));
        Events ready = new Events();
        w.getResetListenable().addListener(() -> ready.add("ready"));
        w.getListenable().addListener(e -> add(b, events, e));
        w.start();
        ready.expect("ready");
        return w;
    }

    private static void recursive(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        Events events = new Events();
        PersistentWatcher w = watch(b, b.client(), true, events);
        writer.create().forPath(b.path);
        writer.create().forPath(b.path + "/a");
        writer.create().forPath(b.path + "/a/b");
        writer.create().forPath(b.path + "-not");
        for (int i = 0; i < 10; i++) {
            writer.setData().forPath(b.path + "/a/b");
        }
        writer.delete().forPath(b.path + "/a/b");
        writer.setData().forPath(b.path);
        writer.delete().forPath(b.path + "/a");
        writer.delete().forPath(b.path);
        events.expect("NodeCreated ", "NodeCreated /a", "NodeCreated /a/b");
        for (int i = 0; i < 10; i++) {
            events.expect("NodeDataChanged /a/b");
        }
        events.expect("NodeDeleted /a/b", "NodeDataChanged ", "NodeDeleted /a", "NodeDeleted ");
        events.none();
        w.close();
    }

    private static void single(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        Events events = new Events();
        PersistentWatcher w = watch(b, b.client(), false, events);
        writer.create().forPath(b.path);
        writer.setData().forPath(b.path);
        writer.create().forPath(b.path + "/a");
        writer.create().forPath(b.path + "/a/b");
        writer.setData().forPath(b.path + "/a");
        writer.setData().forPath(b.path);
        writer.delete().forPath(b.path + "/a/b");
        writer.delete().forPath(b.path + "/a");
        writer.delete().forPath(b.path);
        events.expect("NodeCreated ", "NodeDataChanged ", "NodeChildrenChanged ", "NodeDataChanged ", "NodeChildrenChanged ",
                "NodeDeleted ");
        events.none();
        w.close();
    }

    private static void expired(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework watching = b.client();
        Events events = new Events();
        PersistentWatcher w = watch(b, watching, true, events);
        Events again = new Events();
        w.getResetListenable().addListener(() -> again.add("ready"));
        writer.create().forPath(b.path);
        events.expect("NodeCreated ");
        Bench.expire(watching);
        again.expect("ready");
        writer.create().forPath(b.path + "/a");
        events.expect("NodeCreated /a");
        events.none();
    }

    private static void once(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework c = b.client();
        Events data = new Events();
        Events exists = new Events();
        Events children = new Events();
        c.checkExists().usingWatcher((CuratorWatcher) e -> add(b, exists, e)).forPath(b.path);
        writer.create().forPath(b.path);
        exists.expect("NodeCreated ");
        c.getData().usingWatcher((CuratorWatcher) e -> add(b, data, e)).forPath(b.path);
        c.getChildren().usingWatcher((CuratorWatcher) e -> add(b, children, e)).forPath(b.path);
        writer.setData().forPath(b.path);
        data.expect("NodeDataChanged ");
        writer.setData().forPath(b.path);
        writer.create().forPath(b.path + "/a");
        children.expect("NodeChildrenChanged ");
        writer.create().forPath(b.path + "/b");
        Events last = new Events();
        Bench.sync(c);
        c.checkExists().usingWatcher((CuratorWatcher) e -> add(b, last, e)).forPath(b.path);
        writer.setData().forPath(b.path);
        last.expect("NodeDataChanged ");
        exists.none();
        data.none();
        children.none();
    }

    private static void added(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework c = b.client();
        Events removed = new Events();
        Events stays = new Events();
        CuratorWatcher one = e -> add(b, removed, e);
        CuratorWatcher two = e -> add(b, stays, e);
        c.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(one).forPath(b.path);
        c.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(two).forPath("/");
        writer.create().forPath(b.path);
        removed.expect("NodeCreated ");
        c.watchers().remove(one).ofType(Watcher.WatcherType.Any).forPath(b.path);
        removed.until("PersistentWatchRemoved ");
        writer.setData().forPath(b.path);
        writer.delete().forPath(b.path);
        stays.until("NodeDeleted ");
        removed.none();
        Bench.fails(KeeperException.NoWatcherException.class, () -> c.watchers().remove(one).forPath(b.path));
    }

    private static void removedTogether(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework c = b.client();
        writer.create().forPath(b.path);
        Bench.sync(c);
        Events removed = new Events();
        Events stays = new Events();
        WatcherRemoveCuratorFramework removing = c.newWatcherRemoveCuratorFramework();
        removing.getData().usingWatcher((CuratorWatcher) e -> add(b, removed, e)).forPath(b.path);
        removing.getChildren().usingWatcher((CuratorWatcher) e -> add(b, removed, e)).forPath(b.path);
        c.checkExists().usingWatcher((CuratorWatcher) e -> add(b, stays, e)).forPath(b.path + "/a");
        removing.removeWatchers();
        Bench.equal("what is removed", Set.of("DataWatchRemoved ", "ChildWatchRemoved "), Set.of(removed.next(), removed.next()));
        writer.setData().forPath(b.path);
        writer.create().forPath(b.path + "/a");
        stays.expect("NodeCreated /a");
        removed.none();
    }
}
