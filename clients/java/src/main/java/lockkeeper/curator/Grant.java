package lockkeeper.curator;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * A lock that is held, with its fencing token. It ends when the lock is released, or when the lock
 * can no longer be relied on, whichever comes first, and does not come back. Its methods may be
 * called from any thread.
 *
 * <p>While it stands, a reading of its node is asked for six times per session timeout. Each answer
 * proves that the session lived when it was asked for; two thirds of the timeout after the newest
 * proof the grant ends. So it ends in time also if the thread that delivers Curator's events is
 * blocked, or the process was stopped.
 */
public final class Grant {
    /** Why a lock can no longer be relied on. */
    public enum Loss {
        /** The connection broke, as Curator has said. */
        SUSPENDED,
        /** The session has expired, as Curator has said. */
        LOST,
        /** There was no proof for two thirds of the session timeout. */
        SILENT,
        /** The lock's node was deleted: by somebody, or because the program closed its client. */
        DELETED
    }

    private static final int PROOFS_PER_TIMEOUT = 6;
    private static final ThreadFactory DAEMONS = task -> {
        Thread thread = new Thread(task, "lockkeeper-grants");
        thread.setDaemon(true);
        return thread;
    };
    /** Looks at the clock, and never waits. */
    private static final ScheduledThreadPoolExecutor TIMER = new ScheduledThreadPoolExecutor(1, DAEMONS);
    /** Reads nodes, and runs the functions that depend on a loss. */
    private static final ExecutorService OTHERS = Executors.newCachedThreadPool(DAEMONS);

    static {
        TIMER.setRemoveOnCancelPolicy(true);
    }

    private final CuratorFramework client;
    private final String node;
    private final long token;
    private final CompletableFuture<Loss> lost;
    private final long timeoutNs;
    private final AtomicBoolean reading = new AtomicBoolean();
    /** When the newest proof was asked for, by System.nanoTime. */
    private volatile long proof;

    private Grant(CuratorFramework client, String node, long token, CompletableFuture<Loss> lost, int timeoutMs,
            long proof) {
        this.client = client;
        this.node = node;
        this.token = token;
        this.lost = lost;
        this.timeoutNs = TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        this.proof = proof;
    }

    /**
     * Returns the grant of a lock that the client has just got with this node. It throws a
     * KeeperException if the node is gone, or belongs to an earlier session.
     *
     * <p>Order: the listener first, then the node. If the listener has heard nothing by the time
     * that the node is read, it is ours, and it will hear of the connection that it was read on.
     */
    static Grant of(CuratorFramework client, String node) throws Exception {
        while (true) {
            CompletableFuture<Loss> lost = listen(client);
            try {
                long asked = System.nanoTime();
                Watcher watcher = event -> {
                    if (event.getType() == EventType.NodeDeleted) {
                        lost.complete(Loss.DELETED);
                    }
                };
                Stat stat = client.checkExists().usingWatcher(watcher).forPath(node);
                ZooKeeper session = client.getZookeeperClient().getZooKeeper();
                if (stat == null) {
                    throw new KeeperException.NoNodeException(node);
                }
                if (stat.getEphemeralOwner() != session.getSessionId()) {
                    throw KeeperException.create(KeeperException.Code.SESSIONEXPIRED, node);
                }
                Grant grant = new Grant(client, node, stat.getCzxid(), lost, session.getSessionTimeout(), asked);
                if (grant.isHeld()) {
                    grant.keep();
                    return grant;
                }
            } catch (Throwable t) {
                lost.cancel(false);
                throw t;
            }
        }
    }

    /** Returns a future that completes with the next trouble of the client's connection. */
    private static CompletableFuture<Loss> listen(CuratorFramework client) {
        CompletableFuture<Loss> lost = new CompletableFuture<>();
        ConnectionStateListener states = (c, state) -> {
            if (state == ConnectionState.SUSPENDED) {
                lost.complete(Loss.SUSPENDED);
            } else if (state == ConnectionState.LOST) {
                lost.complete(Loss.LOST);
            }
        };
        client.getConnectionStateListenable().addListener(states);
        lost.whenComplete((loss, e) -> client.getConnectionStateListenable().removeListener(states));
        return lost;
    }

    /** Looks after the grant until it ends. */
    private void keep() {
        long period = timeoutNs / PROOFS_PER_TIMEOUT;
        ScheduledFuture<?> looks = TIMER.scheduleAtFixedRate(() -> {
            if (!isProven(System.nanoTime() + period)) {
                OTHERS.execute(() -> lost.complete(Loss.SILENT));
            } else if (reading.compareAndSet(false, true)) {
                OTHERS.execute(this::prove);
            }
        }, period, period, TimeUnit.NANOSECONDS);
        lost.whenComplete((loss, e) -> looks.cancel(false));
    }

    /** Asks for a proof and waits for it. */
    private void prove() {
        try {
            long asked = System.nanoTime();
            Stat stat = client.checkExists().forPath(node);
            if (stat != null && stat.getCzxid() == token) {
                proof = asked;
            } else {
                lost.complete(Loss.DELETED);
            }
        } catch (Exception e) {
            // No proof: a listener or the clock ends the grant.
        } finally {
            reading.set(false);
        }
    }

    /** Reports whether the newest proof is good at that time, by System.nanoTime. */
    private boolean isProven(long at) {
        return at - proof <= timeoutNs / 3 * 2;
    }

    /**
     * Returns the fencing token: a number that is larger than every earlier holder's. It is the
     * zxid that created the lock's node, its czxid. Send it along with every write, and let the
     * resource refuse a token that is smaller than one that it has seen.
     */
    public long token() {
        return token;
    }

    /** Returns the path of the lock's node. */
    public String node() {
        return node;
    }

    /**
     * Returns a future that completes when the lock can no longer be relied on, with the reason;
     * unless its node was deleted, before anybody else can get the lock. A release cancels it.
     *
     * <p>Functions that depend on it may run in the thread of Curator's listeners, so they must not
     * wait.
     */
    public CompletableFuture<Loss> lost() {
        isHeld();
        return lost;
    }

    /**
     * Reports whether the lock is neither lost nor released. It looks at the clock, so it is right
     * from the first moment after a pause; a write that follows may still come after the next
     * pause, which is why it carries the token.
     */
    public boolean isHeld() {
        if (!isProven(System.nanoTime())) {
            lost.complete(Loss.SILENT);
        }
        return !lost.isDone();
    }

    /**
     * Does all of the operations, or none, but only if the lock is still held when the cluster gets
     * to them, however long this process was stopped before: in the same transaction the lock's node
     * is checked to be there. With it, data that are in the cluster itself need no token.
     *
     * <pre>grant.guard(client.transactionOp().setData().forPath("/balance", bytes));</pre>
     *
     * <p>It throws a LockLostException if the grant has ended, and a KeeperException of an operation
     * that failed; nothing was done then. With any other exception, as of a connection that broke,
     * all or nothing may have been done, or may be done yet, but nothing after the end of the grant.
     * Curator sends a transaction again whose answer was lost: give its operations versions if they
     * must not be done twice.
     *
     * @return the results, in the order of the operations
     */
    public List<CuratorTransactionResult> guard(CuratorOp... operations) throws Exception {
        if (!isHeld()) {
            throw new LockLostException(node, lost);
        }
        List<CuratorOp> all = new ArrayList<>();
        all.add(client.transactionOp().check().forPath(node));
        all.addAll(Arrays.asList(operations));
        try {
            return client.transaction().forOperations(all).subList(1, all.size());
        } catch (KeeperException.NoNodeException e) {
            List<OpResult> results = e.getResults();
            if (results != null && results.get(0) instanceof OpResult.ErrorResult
                    && ((OpResult.ErrorResult) results.get(0)).getErr() == e.code().intValue()) {
                lost.complete(Loss.DELETED);
                throw new LockLostException(node, lost);
            }
            throw e;
        }
    }

    /** Ends the grant for a release. */
    void end() {
        lost.cancel(false);
    }
}
