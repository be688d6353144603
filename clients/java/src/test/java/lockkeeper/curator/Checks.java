package lockkeeper.curator;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.listen.StandardListenerManager;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/**
 * Checks what other processes cannot bring about: an event at a given step, a node of another
 * session, a thread that acquires twice. It fails with an AssertionError.
 *
 * <pre>Checks SERVERS PATH</pre>
 */
public final class Checks {
    private Checks() {
    }

    private static CuratorFramework connect(String servers) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, new RetryOneTime(1));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    private static void check(boolean holds, String claim) {
        if (!holds) {
            throw new AssertionError(claim);
        }
    }

    /** A grant is of a node that is there, and that belongs to this session. */
    static void nodeOfAnotherSession(CuratorFramework client, CuratorFramework other, String path) throws Exception {
        String node = other.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath(path + "/other");
        try {
            Grant.of(client, node);
            check(false, "another session's node was granted");
        } catch (KeeperException.SessionExpiredException e) {
            // as it should
        }
        other.delete().forPath(node);
        try {
            Grant.of(client, node);
            check(false, "a node that is not there was granted");
        } catch (KeeperException.NoNodeException e) {
            // as it should
        }
    }

    /**
     * A suspension while the node is read has it read again, and the grant stands on the second
     * reading.
     */
    static void suspendedMeanwhile(CuratorFramework client, String path) throws Exception {
        String node = client.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath(path + "/own");
        StandardListenerManager<ConnectionStateListener> listeners = StandardListenerManager.standard();
        AtomicInteger readings = new AtomicInteger();
        CuratorFramework troubled = (CuratorFramework) Proxy.newProxyInstance(Checks.class.getClassLoader(),
                new Class<?>[] {CuratorFramework.class}, (proxy, method, args) -> {
                    if (method.getName().equals("getConnectionStateListenable")) {
                        return listeners;
                    }
                    if (method.getName().equals("checkExists") && readings.incrementAndGet() == 1) {
                        listeners.forEach(l -> l.stateChanged(client, ConnectionState.SUSPENDED));
                    }
                    try {
                        return method.invoke(client, args);
                    } catch (InvocationTargetException e) {
                        throw e.getCause();
                    }
                });
        Grant grant = Grant.of(troubled, node);
        check(grant.isHeld(), "the grant was lost before it was given");
        check(readings.get() == 2, "the node was read " + readings + " times");
        check(listeners.size() == 1, listeners.size() + " listeners for one grant");
        listeners.forEach(l -> l.stateChanged(client, ConnectionState.RECONNECTED));
        check(grant.isHeld(), "a grant ended with the connection's return");
        listeners.forEach(l -> l.stateChanged(client, ConnectionState.SUSPENDED));
        check(grant.lost().getNow(null) == Grant.Loss.SUSPENDED, "a suspended grant stands");
        check(listeners.size() == 0, listeners.size() + " listeners for no grant");
    }

    /** A grant ends two thirds of the session timeout after its newest proof, if somebody looks. */
    static void clock(CuratorFramework client, String path) throws Exception {
        Grant grant = Grant.of(client, client.create().withMode(CreateMode.EPHEMERAL).forPath(path + "/clock"));
        long timeoutNs = TimeUnit.MILLISECONDS.toNanos(client.getZookeeperClient().getZooKeeper().getSessionTimeout());
        Field proof = Grant.class.getDeclaredField("proof");
        proof.setAccessible(true);
        proof.setLong(grant, System.nanoTime() - timeoutNs / 2);
        check(grant.isHeld(), "a grant ended before its proof was old");
        proof.setLong(grant, System.nanoTime() - timeoutNs / 3 * 2);
        check(grant.lost().getNow(null) == Grant.Loss.SILENT, "a grant stands on an old proof");
    }

    /**
     * A thread that holds the lock acquires it again, with the same grant; not when it has lost it.
     */
    static void reentrance(CuratorFramework client, String path) throws Exception {
        FencedMutex mutex = new FencedMutex(client, path + "/mutex");
        mutex.acquire();
        Grant grant = mutex.grant();
        check(mutex.acquire(1, TimeUnit.SECONDS), "the holder did not get the lock again");
        check(mutex.grant() == grant, "the holder got another grant");
        mutex.release();
        check(mutex.grant() == grant && grant.isHeld(), "the grant ended with the first of two releases");
        client.delete().forPath(grant.node());
        check(grant.lost().get(10, TimeUnit.SECONDS) == Grant.Loss.DELETED, "lost, but not for the deletion");
        try {
            mutex.acquire();
            check(false, "a holder that has lost the lock acquired it again");
        } catch (IllegalStateException e) {
            // as it should
        }
        mutex.release();
        check(!mutex.isAcquiredInThisProcess(), "Curator's lock is held after the last release");
        try {
            mutex.grant();
            check(false, "a grant without a lock");
        } catch (IllegalMonitorStateException e) {
            // as it should
        }
        mutex.acquire();
        check(mutex.grant().token() > grant.token(), "tokens do not grow");
        mutex.release();
    }

    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = connect(args[0]); CuratorFramework other = connect(args[0])) {
            nodeOfAnotherSession(client, other, args[1]);
            suspendedMeanwhile(client, args[1]);
            clock(client, args[1]);
            reentrance(client, args[1]);
            reentrance(client.usingNamespace("space"), args[1]);
        }
    }
}
