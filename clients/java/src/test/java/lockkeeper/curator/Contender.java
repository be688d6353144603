package lockkeeper.curator;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.retry.RetryForever;

/**
 * A process that locks, for the tests in jepsen/clients, which describe the protocol.
 *
 * <pre>Contender SERVERS SESSION_TIMEOUT_MS</pre>
 */
public final class Contender {
    private static final int RETRY_MS = 200;

    private Contender() {
    }

    /** Prints a line with the time, which is CLOCK_MONOTONIC on Linux. */
    static void say(Object... words) {
        StringBuilder line = new StringBuilder().append(System.nanoTime());
        for (Object word : words) {
            line.append(' ').append(String.valueOf(word).replace('\n', ' '));
        }
        System.out.println(line);
    }

    /** One of the locks: how to acquire and release it. */
    private interface Lock {
        Grant acquire() throws Exception;

        void release() throws Exception;
    }

    private interface Granter {
        Grant grant();
    }

    private static Lock of(InterProcessLock lock, Granter granter) {
        return new Lock() {
            @Override
            public Grant acquire() throws Exception {
                lock.acquire();
                return granter.grant();
            }

            @Override
            public void release() throws Exception {
                lock.release();
            }
        };
    }

    private static Lock of(FencedSemaphore semaphore) {
        return new Lock() {
            private FencedSemaphore.FencedLease lease;

            @Override
            public Grant acquire() throws Exception {
                lease = semaphore.acquire();
                return lease.grant();
            }

            @Override
            public void release() {
                semaphore.returnLease(lease);
            }
        };
    }

    private static Lock open(CuratorFramework client, String kind, String path) {
        if (kind.equals("mutex=all")) {
            FencedMutex mutex = new FencedMutex(client, path, new AllLayouts());
            return of(mutex, mutex::grant);
        } else if (kind.equals("mutex")) {
            FencedMutex mutex = new FencedMutex(client, path);
            return of(mutex, mutex::grant);
        } else if (kind.equals("read")) {
            FencedReadWriteLock.Reader reader = new FencedReadWriteLock(client, path).readLock();
            return of(reader, reader::grant);
        } else if (kind.equals("write")) {
            FencedReadWriteLock.Writer writer = new FencedReadWriteLock(client, path).writeLock();
            return of(writer, writer::grant);
        }
        return of(new FencedSemaphore(client, path, Integer.parseInt(kind.substring("lease=".length()))));
    }

    /** A lock, with the thread that uses it. */
    private static final class Handle extends Thread {
        final String name;
        final CuratorFramework client;
        final Lock lock;
        final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        private Grant grant;

        Handle(String name, CuratorFramework client, Lock lock) {
            this.name = name;
            this.client = client;
            this.lock = lock;
            setDaemon(true);
        }

        @Override
        public void run() {
            while (true) {
                String verb = "";
                try {
                    verb = commands.take();
                    command(verb);
                } catch (Exception e) {
                    say("failed", name, verb, e);
                }
            }
        }

        private void command(String verb) throws Exception {
            switch (verb) {
                case "acquire":
                    Grant before = grant;
                    grant = lock.acquire();
                    say("granted", name, grant.token(), grant.node());
                    if (grant != before) { // not re-entered
                        grant.lost().whenComplete((loss, cancelled) ->
                                say("ended", name, loss == null ? "released" : loss.name().toLowerCase()));
                    }
                    break;
                case "release":
                    lock.release();
                    say("released", name);
                    break;
                case "write": // prints the token that a write would carry, and whether it would be made
                    say("wrote", name, grant.token(), grant.isHeld());
                    break;
                case "guard":
                    guard("held");
                    break;
                case "late": // has the lock's node deleted, and writes before it can know
                    client.delete().inBackground().forPath(grant.node());
                    guard("late");
                    break;
                default:
                    throw new IllegalArgumentException(verb);
            }
        }

        /** Writes to the node beside the lock's path, if the lock is held. */
        private void guard(String data) throws Exception {
            String path = grant.node().substring(0, grant.node().lastIndexOf('/')) + "-data";
            try {
                List<CuratorTransactionResult> results = grant.guard(
                        client.transactionOp().setData().forPath(path, data.getBytes(StandardCharsets.UTF_8)));
                say("guarded", name, results.get(0).getResultStat().getVersion());
            } catch (LockLostException e) {
                say("refused", name, e.loss == null ? "released" : e.loss.name().toLowerCase());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        int timeoutMs = Integer.parseInt(args[1]);
        // The tracker reads the addresses of all members, so the client would go on beside a proxy
        // that is cut.
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0])
                .sessionTimeoutMs(timeoutMs).connectionTimeoutMs(timeoutMs)
                .retryPolicy(new RetryForever(RETRY_MS)).ensembleTracker(false).build();
        client.start();
        client.blockUntilConnected();
        say("ready");
        Map<String, Handle> handles = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[1].equals("open")) {
                Handle handle = new Handle(words[0], client, open(client, words[2], words[3]));
                handles.put(words[0], handle);
                handle.start();
            } else if (words[1].equals("trouble")) {
                // Blocks the thread of the events, as a callback that waits does: Curator says
                // nothing more.
                client.checkExists().inBackground((c, event) -> {
                    say("troubled", words[0]);
                    Thread.sleep(Long.MAX_VALUE);
                }).forPath("/");
            } else if (words[1].equals("close")) {
                client.close();
                say("closed", words[0]);
            } else {
                handles.get(words[0]).commands.add(words[1]);
            }
        }
        System.exit(0);
    }
}
