import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.listen.UnaryListenerManager;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.framework.state.ConnectionStateListenerManagerFactory;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/** The node and the clients of one check. They end with the check. */
final class Bench implements AutoCloseable {
    static final int SESSION_TIMEOUT_MS = 20_000;
    /** Bounds every wait for something that has to happen. */
    static final long PATIENCE_MS = 60_000;
    /**
     * How long a check waits for what must not happen. Too short can only miss a fault, not make
     * one up.
     */
    static final long MOMENT_MS = 150;

    private static final Pattern REMOTE = Pattern.compile("remoteserver:[^/ ]*/([0-9.]+:[0-9]+)");

    interface Condition {
        boolean holds() throws Exception;
    }

    final Harness harness;
    final String servers;
    /** No other check uses this node, and nothing has created it. */
    final String path;

    private final Deque<AutoCloseable> kept = new ArrayDeque<>();
    private final ExecutorService threads;

    Bench(Harness harness, String servers, String path) {
        this.harness = harness;
        this.servers = servers;
        this.path = path;
        threads = pool(path);
    }

    static ExecutorService pool(String name) {
        return Executors.newCachedThreadPool(task -> {
            Thread t = new Thread(task, name);
            t.setDaemon(true);
            return t;
        });
    }

    // ---- clients

    /** A client of the whole cluster, connected. */
    CuratorFramework client() throws Exception {
        return client(builder -> builder);
    }

    /** A client that stays at one member. */
    CuratorFramework clientAt(String address) throws Exception {
        return client(builder -> builder.connectString(address).ensembleTracker(false));
    }

    /**
     * A client of the whole cluster that happens to be connected to the same member as the other.
     */
    CuratorFramework clientBeside(CuratorFramework other) throws Exception {
        String address = member(other);
        for (;;) {
            CuratorFramework c = client();
            if (member(c).equals(address)) {
                return c;
            }
            c.close();
        }
    }

    /**
     * Its listeners have been told that it is connected when this returns. Curator tells them from
     * a thread of its own, some time after blockUntilConnected returns, and service discovery
     * answers by registering its instances again: for a moment they are gone.
     */
    CuratorFramework client(UnaryOperator<CuratorFrameworkFactory.Builder> with) throws Exception {
        CountDownLatch told = new CountDownLatch(1);
        CuratorFramework c = with.apply(CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(SESSION_TIMEOUT_MS)
                // Else it is the client's own address.
                .defaultData(new byte[0])
                // Closing a client waits this long if its connection is gone.
                .waitForShutdownTimeoutMs(0)
                .connectionStateListenerManagerFactory(client -> telling(client, told))
                .retryPolicy(new BoundedExponentialBackoffRetry(50, 1000, 29)))
                .build();
        keep(c);
        c.start();
        if (!told.await(PATIENCE_MS, TimeUnit.MILLISECONDS)
                || !c.blockUntilConnected((int) PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            throw new Failure("the client does not connect");
        }
        return c;
    }

    /**
     * Curator's own list of listeners, which counts down when it has told them all of something.
     */
    @SuppressWarnings("unchecked")
    private static UnaryListenerManager<ConnectionStateListener> telling(CuratorFramework c, CountDownLatch told) {
        Object curators = ConnectionStateListenerManagerFactory.standard.newManager(c);
        return (UnaryListenerManager<ConnectionStateListener>) Proxy.newProxyInstance(Bench.class.getClassLoader(),
                new Class<?>[] {UnaryListenerManager.class}, (proxy, method, args) -> {
                    Object result = method.invoke(curators, args);
                    if (method.getName().equals("forEach")) {
                        told.countDown();
                    }
                    return result;
                });
    }

    static ZooKeeper zk(CuratorFramework c) throws Exception {
        return c.getZookeeperClient().getZooKeeper();
    }

    static long session(CuratorFramework c) throws Exception {
        return zk(c).getSessionId();
    }

    /** The address of the member that the client is connected to. */
    static String member(CuratorFramework c) throws Exception {
        String[] found = new String[1];
        await("the client's member", () -> {
            Matcher m = REMOTE.matcher(zk(c).toString());
            found[0] = m.find() ? m.group(1) : null;
            return found[0] != null;
        });
        return found[0];
    }

    /** The addresses of all members, or of all but one. */
    String[] membersBut(String address) {
        return Arrays.stream(servers.split(",")).filter(s -> !s.equals(address)).toArray(String[]::new);
    }

    /**
     * Ends the client's session at the server: by a second connection with its id and password that
     * closes it. Returns when the client has a new one.
     */
    static void expire(CuratorFramework c) throws Exception {
        ZooKeeper old = zk(c);
        long id = old.getSessionId();
        await("another session", () -> {
            CountDownLatch connected = new CountDownLatch(1);
            ZooKeeper second = new ZooKeeper(member(c), SESSION_TIMEOUT_MS, event -> {
                if (event.getState() == KeeperState.SyncConnected || event.getState() == KeeperState.Expired) {
                    connected.countDown();
                }
            }, id, old.getSessionPasswd());
            connected.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
            second.close();
            // The client itself may have taken the session back before that; then it is done again.
            return within(2000, () -> session(c) != id && session(c) != 0 && c.getZookeeperClient().isConnected());
        });
    }

    /** From here on the client reads all earlier writes, by whomever. */
    static void sync(CuratorFramework c) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        c.sync().inBackground((client, event) -> done.countDown()).forPath("/");
        get("sync", done);
    }

    // ---- data

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        return data == null ? "null" : new String(data, StandardCharsets.UTF_8);
    }

    static boolean exists(CuratorFramework c, String path) throws Exception {
        return c.checkExists().forPath(path) != null;
    }

    /** The session that an ephemeral node belongs to; 0 if there is no node. */
    static long owner(CuratorFramework c, String path) throws Exception {
        Stat stat = c.checkExists().forPath(path);
        return stat == null ? 0 : stat.getEphemeralOwner();
    }

    // ---- waiting and comparing

    static void await(String what, Condition condition) throws Exception {
        if (!within(PATIENCE_MS, condition)) {
            throw new Failure("waited in vain for " + what);
        }
    }

    private static boolean within(long ms, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
        while (!condition.holds()) {
            if (System.nanoTime() - deadline > 0) {
                return false;
            }
            Thread.sleep(10);
        }
        return true;
    }

    static void awaitEqual(String what, Object want, Callable<?> got) throws Exception {
        Object[] last = new Object[1];
        try {
            await(what, () -> Objects.equals(want, last[0] = got.call()));
        } catch (Failure e) {
            equal(what, want, last[0]);
            throw e;
        }
    }

    static void equal(String what, Object want, Object got) {
        if (!Objects.equals(want, got)) {
            throw new Failure(what + " is " + got + ", want " + want);
        }
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new Failure("not so: " + what);
        }
    }

    /** The call throws this. */
    static <E extends Exception> E fails(Class<E> want, Callable<?> run) throws Exception {
        Object result;
        try {
            result = run.call();
        } catch (Exception e) {
            if (want.isInstance(e)) {
                return want.cast(e);
            }
            throw e;
        }
        throw new Failure("returned " + result + ", want " + want.getSimpleName());
    }

    /** Runs something in a thread of its own. */
    <T> Future<T> later(Callable<T> run) {
        return threads.submit(run);
    }

    static <T> T get(Future<T> result) throws Exception {
        return result.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    static void get(String what, CountDownLatch latch) throws InterruptedException {
        if (!latch.await(PATIENCE_MS, TimeUnit.MILLISECONDS)) {
            throw new Failure("waited in vain for " + what);
        }
    }

    // ---- the end

    /** Closes it when the check ends, if the check has not. */
    synchronized <T extends AutoCloseable> T keep(T closeable) {
        kept.push(closeable);
        return closeable;
    }

    @Override
    public void close() {
        threads.shutdownNow();
        for (AutoCloseable c : kept) {
            try {
                c.close();
            } catch (Exception e) {
                // What the check closed itself refuses to be closed again; the check has its
                // result.
                System.err.println(path + ": close: " + e);
            }
        }
    }
}
