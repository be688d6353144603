package lockkeeper.curator;

import java.util.concurrent.CompletableFuture;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.CuratorEventType;
import org.apache.curator.framework.api.CuratorListener;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.data.Stat;

/**
 * A lock that is held, with its fencing token. It ends when the lock is released, or when the lock can no longer be
 * relied on, whichever comes first, and does not come back. Its methods may be called from any thread.
 */
public final class Grant {
    /** Why a lock can no longer be relied on. */
    public enum Loss {
        /** The connection broke, or was silent for two thirds of the session timeout. */
        SUSPENDED,
        /** The session has expired. */
        LOST,
        /** Somebody deleted the lock's node. */
        DELETED,
        /** The program closes its client, and with it the session. */
        CLOSED
    }

    private final String node;
    private final long token;
    private final CompletableFuture<Loss> lost;

    private Grant(String node, long token, CompletableFuture<Loss> lost) {
        this.node = node;
        this.token = token;
        this.lost = lost;
    }

    /**
     * Returns the grant of a lock that the client has just got with this node. It throws a KeeperException if the node
     * is gone, or belongs to an earlier session.
     *
     * <p>Order: the listeners first, then the node. If the listeners have heard nothing by the time that the node is
     * read, it is ours, and they will hear of the connection that it was read on.
     */
    static Grant of(CuratorFramework client, String node) throws Exception {
        while (true) {
            CompletableFuture<Loss> lost = listen(client);
            Stat stat;
            long session;
            try {
                Watcher watcher = event -> {
                    if (event.getType() == EventType.NodeDeleted) {
                        lost.complete(Loss.DELETED);
                    }
                };
                stat = client.checkExists().usingWatcher(watcher).forPath(node);
                session = client.getZookeeperClient().getZooKeeper().getSessionId();
            } catch (Throwable t) {
                lost.cancel(false);
                throw t;
            }
            if (stat == null || stat.getEphemeralOwner() != session) {
                lost.cancel(false);
                throw stat == null ? new KeeperException.NoNodeException(node)
                        : KeeperException.create(KeeperException.Code.SESSIONEXPIRED, node);
            }
            if (!lost.isDone()) {
                return new Grant(node, stat.getCzxid(), lost);
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
        CuratorListener events = (c, event) -> {
            if (event.getType() == CuratorEventType.CLOSING) {
                lost.complete(Loss.CLOSED);
            }
        };
        client.getConnectionStateListenable().addListener(states);
        client.getCuratorListenable().addListener(events);
        lost.whenComplete((loss, e) -> {
            client.getConnectionStateListenable().removeListener(states);
            client.getCuratorListenable().removeListener(events);
        });
        return lost;
    }

    /**
     * Returns the fencing token: a number that is larger than every earlier holder's. It is the zxid that created the
     * lock's node, its czxid. Send it along with every write, and let the resource refuse a token that is smaller than
     * one that it has seen.
     */
    public long token() {
        return token;
    }

    /** Returns the path of the lock's node. */
    public String node() {
        return node;
    }

    /**
     * Returns a future that completes when the lock can no longer be relied on, with the reason, before anybody else
     * can get the lock. A release cancels it.
     *
     * <p>Functions that depend on it run in the thread of Curator's listeners, so they must not wait.
     */
    public CompletableFuture<Loss> lost() {
        return lost;
    }

    /** Reports whether the lock is neither lost nor released, as far as this process has heard. */
    public boolean isHeld() {
        return !lost.isDone();
    }

    /** Ends the grant for a release. */
    void end() {
        lost.cancel(false);
    }
}
