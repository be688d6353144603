import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.zookeeper.CreateMode;

/** The four caches: what one client changes, the cache of another one tells, in order. */
@SuppressWarnings("deprecation")
final class Caches {
    private Caches() {}

    static void add(Suite s) {
        s.check("Caches/CuratorCache", Caches::curatorCache);
        s.check("Caches/CuratorCache of one node", Caches::curatorCacheOfOneNode);
        s.check("Caches/CuratorCache of a node that comes later", Caches::curatorCacheOfNothing);
        s.check("Caches/TreeCache", Caches::treeCache);
        s.check("Caches/TreeCache of one level", Caches::treeCacheOfOneLevel);
        s.check("Caches/PathChildrenCache", Caches::pathChildrenCache);
        s.check("Caches/NodeCache", Caches::nodeCache);
        s.check("Caches/see an ephemeral go with its session", Caches::ephemeral);
        s.check("Caches/go on after their session expired", Caches::expired);
    }

    /** A node as text: its path below the check's, and its data. */
    static String text(Bench b, ChildData d) {
        return d == null ? "-" : d.getPath().substring(b.path.length()) + "=" + Bench.text(d.getData());
    }

    private static void curatorCache(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        writer.create().forPath(b.path, Bench.bytes("0"));
        writer.create().forPath(b.path + "/a", Bench.bytes("1"));
        Bench.sync(reader);

        Events events = new Events();
        CuratorCache cache = b.keep(CuratorCache.build(reader, b.path));
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forAll((type, before, after) -> events.add(type + " " + text(b, before) + " " + text(b, after)))
                .forInitialized(() -> events.add("initialized"))
                .build());
        cache.start();
        events.expect("NODE_CREATED - =0", "NODE_CREATED - /a=1", "initialized");
        writer.create().forPath(b.path + "/a/b", Bench.bytes("2"));
        events.expect("NODE_CREATED - /a/b=2");
        writer.setData().forPath(b.path + "/a", Bench.bytes("3"));
        events.expect("NODE_CHANGED /a=1 /a=3");
        writer.setData().forPath(b.path + "/a/b", Bench.bytes("4"));
        events.expect("NODE_CHANGED /a/b=2 /a/b=4");
        Bench.equal("the cached data", "4", Bench.text(cache.get(b.path + "/a/b").orElseThrow().getData()));
        Bench.equal("the size", 3, cache.size());
        writer.delete().deletingChildrenIfNeeded().forPath(b.path);
        events.expect("NODE_DELETED /a/b=4 -", "NODE_DELETED /a=3 -", "NODE_DELETED =0 -");
        writer.create().forPath(b.path, Bench.bytes("5"));
        events.expect("NODE_CREATED - =5");
        Bench.equal("the size", 1, cache.size());
        events.none();
    }

    private static void curatorCacheOfOneNode(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        writer.create().forPath(b.path, Bench.bytes("0"));
        Bench.sync(reader);
        Events events = new Events();
        CuratorCache cache = b.keep(CuratorCache.build(reader, b.path, CuratorCache.Options.SINGLE_NODE_CACHE));
        cache.listenable().addListener((type, before, after) -> events.add(type + " " + text(b, before) + " " + text(b, after)));
        cache.start();
        events.expect("NODE_CREATED - =0");
        writer.create().forPath(b.path + "/child");
        writer.setData().forPath(b.path, Bench.bytes("1"));
        events.expect("NODE_CHANGED =0 =1");
        writer.delete().forPath(b.path + "/child");
        writer.delete().forPath(b.path);
        events.expect("NODE_DELETED =1 -");
        events.none();
    }

    private static void curatorCacheOfNothing(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        Events events = new Events();
        CuratorCache cache = b.keep(CuratorCache.build(b.client(), b.path + "/x"));
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forAll((type, before, after) -> events.add(type + " " + text(b, before) + " " + text(b, after)))
                .forInitialized(() -> events.add("initialized"))
                .build());
        cache.start();
        events.expect("initialized");
        writer.create().creatingParentsIfNeeded().forPath(b.path + "/x", Bench.bytes("1"));
        events.expect("NODE_CREATED - /x=1");
        // The watch is recursive; the name of a sibling begins alike.
        writer.create().forPath(b.path + "/xx", Bench.bytes("2"));
        writer.create().forPath(b.path + "/x/y", Bench.bytes("3"));
        events.expect("NODE_CREATED - /x/y=3");
        events.none();
    }

    private static TreeCache treeCache(Bench b, TreeCache cache, Events events) throws Exception {
        cache.getListenable().addListener((c, e) -> events.add(e.getType() + (e.getData() == null ? "" : " " + text(b, e.getData()))));
        return b.keep(cache.start());
    }

    private static void treeCache(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        writer.create().forPath(b.path, Bench.bytes("0"));
        writer.create().forPath(b.path + "/a", Bench.bytes("1"));
        Bench.sync(reader);
        Events events = new Events();
        TreeCache cache = treeCache(b, TreeCache.newBuilder(reader, b.path).build(), events);
        events.expect("NODE_ADDED =0", "NODE_ADDED /a=1", "INITIALIZED");
        writer.create().forPath(b.path + "/a/b", Bench.bytes("2"));
        events.expect("NODE_ADDED /a/b=2");
        writer.setData().forPath(b.path + "/a/b", Bench.bytes("3"));
        events.expect("NODE_UPDATED /a/b=3");
        Bench.equal("the children", "[b]", cache.getCurrentChildren(b.path + "/a").keySet().toString());
        writer.delete().forPath(b.path + "/a/b");
        events.expect("NODE_REMOVED /a/b=3");
        writer.delete().deletingChildrenIfNeeded().forPath(b.path);
        events.expect("NODE_REMOVED /a=1", "NODE_REMOVED =0");
        writer.create().forPath(b.path, Bench.bytes("4"));
        events.expect("NODE_ADDED =4");
        events.none();
    }

    private static void treeCacheOfOneLevel(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        Events events = new Events();
        treeCache(b, TreeCache.newBuilder(b.client(), b.path).setMaxDepth(1).setCreateParentNodes(true).build(), events);
        events.expect("NODE_ADDED =", "INITIALIZED");
        Bench.sync(writer);
        writer.create().forPath(b.path + "/a", Bench.bytes("1"));
        events.expect("NODE_ADDED /a=1");
        writer.create().forPath(b.path + "/a/b", Bench.bytes("2"));
        writer.setData().forPath(b.path + "/a", Bench.bytes("3"));
        events.expect("NODE_UPDATED /a=3");
        events.none();
    }

    private static void pathChildrenCache(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        writer.create().creatingParentsIfNeeded().forPath(b.path + "/a", Bench.bytes("1"));
        Bench.sync(reader);
        Events events = new Events();
        PathChildrenCache cache = b.keep(new PathChildrenCache(reader, b.path, true));
        cache.getListenable().addListener((c, e) -> {
            switch (e.getType()) {
                case INITIALIZED:
                    events.add("INITIALIZED " + e.getInitialData().size());
                    break;
                default:
                    events.add(e.getType() + " " + text(b, e.getData()));
            }
        });
        cache.start(PathChildrenCache.StartMode.POST_INITIALIZED_EVENT);
        events.expect("CHILD_ADDED /a=1", "INITIALIZED 1");
        writer.create().forPath(b.path + "/b", Bench.bytes("2"));
        events.expect("CHILD_ADDED /b=2");
        writer.setData().forPath(b.path + "/a", Bench.bytes("3"));
        events.expect("CHILD_UPDATED /a=3");
        writer.delete().forPath(b.path + "/a");
        events.expect("CHILD_REMOVED /a=3");
        Bench.equal("the children", "[/b=2]", cache.getCurrentData().stream().map(d -> text(b, d)).toList().toString());
        events.none();
        cache.rebuild();
        Bench.equal("the children", "[/b=2]", cache.getCurrentData().stream().map(d -> text(b, d)).toList().toString());
    }

    private static void nodeCache(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        writer.create().forPath(b.path, Bench.bytes("0"));
        Bench.sync(reader);
        Events events = new Events();
        NodeCache cache = b.keep(new NodeCache(reader, b.path));
        cache.getListenable().addListener(() -> events.add(text(b, cache.getCurrentData())));
        cache.start(true);
        Bench.equal("the first data", "=0", text(b, cache.getCurrentData()));
        writer.setData().forPath(b.path, Bench.bytes("1"));
        events.expect("=1");
        writer.delete().forPath(b.path);
        events.expect("-");
        writer.create().forPath(b.path, Bench.bytes("2"));
        events.expect("=2");
        events.none();
    }

    private static void ephemeral(Bench b) throws Exception {
        CuratorFramework owner = b.client();
        All all = new All(b, b.client(), b.client());
        owner.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath(b.path + "/keep", Bench.bytes("e"));
        all.await(Map.of("", "", "/keep", "e"));
        owner.close();
        all.await(Map.of("", ""));
    }

    private static void expired(Bench b) throws Exception {
        CuratorFramework writer = b.client();
        CuratorFramework reader = b.client();
        CuratorFramework second = b.client();
        writer.create().forPath(b.path);
        writer.create().forPath(b.path + "/keep", Bench.bytes("1"));
        writer.create().forPath(b.path + "/gone", Bench.bytes("1"));
        All all = new All(b, reader, second);
        all.await(Map.of("", "", "/keep", "1", "/gone", "1"));
        var expiry = b.later(() -> {
            Bench.expire(reader);
            Bench.expire(second);
            return null;
        });
        writer.setData().forPath(b.path + "/keep", Bench.bytes("2"));
        writer.delete().forPath(b.path + "/gone");
        writer.create().forPath(b.path + "/new", Bench.bytes("1"));
        Bench.get(expiry);
        all.await(Map.of("", "", "/keep", "2", "/new", "1"));
        writer.setData().forPath(b.path + "/keep", Bench.bytes("3"));
        writer.delete().forPath(b.path + "/new");
        all.await(Map.of("", "", "/keep", "3"));
    }

    /**
     * All four caches: three of the check's node and what is below, one of its child "keep".
     * CuratorCache is that of another client, because ZooKeeper 3.8.0 forgets its watch when the
     * session sets one of another kind on the same node (ZOOKEEPER-4466).
     */
    static final class All {
        private final Bench bench;
        private final CuratorCache curator;
        private final TreeCache tree;
        private final PathChildrenCache children;
        private final NodeCache node;
        /** The events of the first of them about each node: created, the new data, deleted. */
        private final Map<String, String> told = new TreeMap<>();

        All(Bench b, CuratorFramework c, CuratorFramework other) throws Exception {
            bench = b;
            Bench.sync(c);
            Bench.sync(other);
            curator = b.keep(CuratorCache.build(c, b.path));
            curator.listenable().addListener((type, before, after) -> tell(b, before, after));
            tree = b.keep(TreeCache.newBuilder(other, b.path).build());
            children = b.keep(new PathChildrenCache(other, b.path, true));
            node = b.keep(new NodeCache(other, b.path + "/keep"));
            curator.start();
            tree.start();
            children.start();
            node.start();
        }

        private synchronized void tell(Bench b, ChildData before, ChildData after) {
            String name = (before == null ? after : before).getPath().substring(b.path.length());
            // A write that the writer repeats, not knowing the outcome, counts once.
            told.merge(name, after == null ? "deleted" : Bench.text(after.getData()),
                    (old, now) -> (" " + old).endsWith(" " + now) ? old : old + " " + now);
        }

        /** The listener's events about a node, in order. */
        synchronized String told(String name) {
            return told.get(name);
        }

        private String name(ChildData d) {
            return d.getPath().substring(bench.path.length());
        }

        /**
         * Waits until all of them have exactly these nodes, by name below the check's, with this
         * data.
         */
        void await(Map<String, String> want) throws Exception {
            Map<String, String> all = new TreeMap<>(want);
            Map<String, String> below = new TreeMap<>(want);
            below.remove("");
            Bench.awaitEqual("CuratorCache", all, () -> new TreeMap<>(curator.stream().collect(
                    Collectors.toMap(this::name, d -> Bench.text(d.getData())))));
            Bench.awaitEqual("TreeCache", all, () -> {
                Map<String, String> has = new TreeMap<>();
                ChildData root = tree.getCurrentData(bench.path);
                if (root != null) {
                    has.put(name(root), Bench.text(root.getData()));
                    tree.getCurrentChildren(bench.path).values().forEach(d -> has.put(name(d), Bench.text(d.getData())));
                }
                return has;
            });
            Bench.awaitEqual("PathChildrenCache", below, () -> {
                Map<String, String> has = new TreeMap<>();
                children.getCurrentData().forEach(d -> has.put(name(d), Bench.text(d.getData())));
                return has;
            });
            Bench.awaitEqual("NodeCache", want.get("/keep"), () -> {
                ChildData d = node.getCurrentData();
                return d == null ? null : Bench.text(d.getData());
            });
        }
    }
}
