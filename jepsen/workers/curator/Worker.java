import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.BoundedExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

/**
 * A client process of the jepsen tests: Apache Curator, unmodified.
 *
 * <pre>java Worker HARNESS NAME SERVERS SESSION_TIMEOUT_MS</pre>
 *
 * It does what the harness tells it over TCP; the protocol is described in the
 * documentation of the Go package lockkeeper/jepsen.
 *
 * Recipes: mutex, read, write, semaphore, latch.
 */
public class Worker {
    /** One open recipe. A timeout below 0 is none; a null token: not acquired in time. */
    interface Handle {
        Long acquire(long timeoutMs) throws Exception;

        void release() throws Exception;

        Collection<String> contenders() throws Exception;
    }

    private final Socket harness;
    private final String name;
    private final CuratorFramework client;
    private final Map<String, Handle> handles = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> threads = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();

    Worker(Socket harness, String name, String servers, int timeoutMs) {
        this.harness = harness;
        this.name = name;
        client = CuratorFrameworkFactory.builder()
                .connectString(servers)
                // Else Curator would go to the addresses that it reads in /zookeeper/config: to
                // members that the test does not name, and past its proxies.
                .ensembleTracker(false)
                .sessionTimeoutMs(timeoutMs)
                .connectionTimeoutMs(timeoutMs)
                .retryPolicy(new BoundedExponentialBackoffRetry(50, 1000, 29))
                .build();
        client.getConnectionStateListenable().addListener((c, state) -> stateChanged(state));
    }

    // ---- the connection to the test

    private void send(String line) {
        byte[] bytes = (line.replace('\n', ' ') + "\n").getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (harness) {
                OutputStream out = harness.getOutputStream();
                out.write(bytes);
                out.flush();
            }
        } catch (IOException e) {
            // The test has gone, so there is nobody left to work for.
            Runtime.getRuntime().halt(1);
        }
    }

    private static final Pattern REMOTE = Pattern.compile("remoteserver:[^/ ]*/([0-9.]+:[0-9]+)");

    private void stateChanged(ConnectionState state) {
        switch (state) {
            case CONNECTED:
            case RECONNECTED:
                try {
                    String zk = client.getZookeeperClient().getZooKeeper().toString();
                    Matcher m = REMOTE.matcher(zk);
                    String server = m.find() ? m.group(1) : "unknown";
                    long session = client.getZookeeperClient().getZooKeeper().getSessionId();
                    send("event connected " + server + " 0x" + Long.toHexString(session));
                } catch (Exception e) {
                    send("event suspended " + e);
                }
                break;
            case SUSPENDED:
                send("event suspended");
                break;
            case LOST:
                send("event expired");
                break;
            default:
                break;
        }
    }

    // ---- recipes

    /** The czxid of the node that holds the lock: the fencing token. */
    private long token(InterProcessMutex mutex) throws Exception {
        Method getLockPath = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        getLockPath.setAccessible(true);
        Stat stat = client.checkExists().forPath((String) getLockPath.invoke(mutex));
        return stat == null ? 0 : stat.getCzxid();
    }

    private Handle mutex(InterProcessMutex mutex) {
        return new Handle() {
            @Override
            public Long acquire(long timeoutMs) throws Exception {
                if (timeoutMs < 0) {
                    mutex.acquire();
                } else if (!mutex.acquire(timeoutMs, TimeUnit.MILLISECONDS)) {
                    return null;
                }
                return token(mutex);
            }

            @Override
            public void release() throws Exception {
                mutex.release();
            }

            @Override
            public Collection<String> contenders() throws Exception {
                return mutex.getParticipantNodes();
            }
        };
    }

    private Handle semaphore(InterProcessSemaphoreV2 semaphore) {
        return new Handle() {
            private Lease lease;

            @Override
            public Long acquire(long timeoutMs) throws Exception {
                lease = timeoutMs < 0 ? semaphore.acquire() : semaphore.acquire(timeoutMs, TimeUnit.MILLISECONDS);
                return lease == null ? null : 0L;
            }

            @Override
            public void release() {
                semaphore.returnLease(lease);
            }

            @Override
            public Collection<String> contenders() throws Exception {
                return semaphore.getParticipantNodes();
            }
        };
    }

    private Handle latch(String handle, String path) {
        return new Handle() {
            private LeaderLatch latch;

            @Override
            public Long acquire(long timeoutMs) throws Exception {
                latch = new LeaderLatch(client, path, name + "/" + handle);
                latch.addListener(new LeaderLatchListener() {
                    @Override
                    public void isLeader() {}

                    @Override
                    public void notLeader() {
                        send("event lost " + handle);
                    }
                });
                latch.start();
                if (timeoutMs < 0) {
                    latch.await();
                } else if (!latch.await(timeoutMs, TimeUnit.MILLISECONDS)) {
                    latch.close();
                    return null;
                }
                Stat stat = client.checkExists().forPath(latch.getOurPath());
                return stat == null ? 0 : stat.getCzxid();
            }

            @Override
            public void release() throws Exception {
                latch.close(LeaderLatch.CloseMode.SILENT);
            }

            @Override
            public Collection<String> contenders() throws Exception {
                return latch.getParticipants().stream().map(p -> p.getId()).collect(Collectors.toList());
            }
        };
    }

    private Handle open(String handle, String recipe, String path, String[] options) {
        switch (recipe) {
            case "mutex":
                return mutex(new InterProcessMutex(client, path));
            case "read":
                return mutex(readWriteLock(path).readLock());
            case "write":
                return mutex(readWriteLock(path).writeLock());
            case "semaphore":
                int leases = Integer.parseInt(options[0].replaceFirst("^leases=", ""));
                return semaphore(new InterProcessSemaphoreV2(client, path, leases));
            case "latch":
                return latch(handle, path);
            default:
                throw new IllegalArgumentException("unknown recipe " + recipe);
        }
    }

    /** The two halves of one InterProcessReadWriteLock, as a program would use them. */
    private InterProcessReadWriteLock readWriteLock(String path) {
        return readWriteLocks.computeIfAbsent(path, p -> new InterProcessReadWriteLock(client, p));
    }

    // ---- commands

    private String run(String verb, String[] args) throws Exception {
        switch (verb) {
            case "open":
                handles.put(args[0], open(args[0], args[1], args[2], Arrays.copyOfRange(args, 3, args.length)));
                return "ok";
            case "acquire":
                Long token = handles.get(args[0]).acquire(Long.parseLong(args[1]));
                return token == null ? "fail timeout" : "ok " + token;
            case "release":
                handles.get(args[0]).release();
                return "ok";
            case "contenders":
                return "ok " + String.join(",", handles.get(args[0]).contenders());
            case "close":
                client.close();
                return "ok";
            default:
                return "fail unknown command " + verb;
        }
    }

    private void answer(String id, String verb, String[] args) {
        String reply;
        try {
            reply = run(verb, args);
        } catch (IllegalMonitorStateException | IllegalArgumentException e) {
            reply = "fail " + e.getClass().getSimpleName() + " " + e.getMessage();
        } catch (Exception e) {
            // Curator gives up after all its retries: the outcome is unknown.
            e.printStackTrace();
            reply = "info " + e.getClass().getSimpleName() + " " + e.getMessage();
        }
        send(id + " " + reply);
    }

    private void serve() throws IOException {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(harness.getInputStream(), StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String id = words[0];
            String thread = words[1];
            String verb = words[2];
            String[] args = Arrays.copyOfRange(words, 3, words.length);
            if (thread.equals("main")) {
                answer(id, verb, args);
                if (verb.equals("close")) {
                    return;
                }
                continue;
            }
            threads.computeIfAbsent(thread, t -> Executors.newSingleThreadExecutor())
                    .execute(() -> answer(id, verb, args));
        }
    }

    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(":");
        Socket harness = new Socket(address[0], Integer.parseInt(address[1]));
        harness.setTcpNoDelay(true);
        Worker worker = new Worker(harness, args[1], args[2], Integer.parseInt(args[3]));
        worker.client.start();
        worker.serve();
        // Threads that still wait for a lock do not keep the process.
        Runtime.getRuntime().halt(0);
    }
}
