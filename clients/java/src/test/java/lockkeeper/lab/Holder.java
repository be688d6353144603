package lockkeeper.lab;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lockkeeper.curator.FencedMutex;
import lockkeeper.curator.Grant;
import lockkeeper.fence.Agent;
import lockkeeper.fence.EtcdFence;
import lockkeeper.fence.FileFence;
import lockkeeper.fence.Http;
import lockkeeper.fence.HttpStore;
import lockkeeper.fence.ObjectsFence;
import lockkeeper.fence.RedisFence;
import lockkeeper.fence.StaleException;
import lockkeeper.fence.TableFence;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;

/**
 * Programs of Curator for the lock lab (jepsen/locklab), any number in one process. Each has a
 * FencedMutex and counters in stores, behind the fences of lockkeeper.fence. A line of input is a step
 * of one of them, and the answer begins with its number:
 *
 * <pre>
 * N open SERVERS SESSION_TIMEOUT_MS PATH     N ok
 * N lock WAIT_MS                             N ok TOKEN; later, perhaps, N lost
 * N held                                     N ok true, or N ok false
 * N unlock                                   N ok
 * N read KIND AT RESOURCE TOKEN              N ok COUNT, or N stale TEXT
 * N write KIND AT RESOURCE TOKEN COUNT       N ok, or N stale TEXT
 * N close                                    N ok
 * </pre>
 *
 * or N error TEXT. jepsen/locklab/store has the names of the counters.
 */
public final class Holder extends Thread {
    private static final int RETRY_MS = 200;
    private static final String COUNT = "count/";
    private static final Map<String, Counter> COUNTERS = new ConcurrentHashMap<>();

    private final String name;
    private final BlockingQueue<String[]> steps = new LinkedBlockingQueue<>();
    private CuratorFramework client;
    private FencedMutex mutex;

    private Holder(String name) {
        this.name = name;
        setDaemon(true);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Holder> holders = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Holder holder = holders.get(words[0]);
            if (holder == null) {
                holder = new Holder(words[0]);
                holders.put(words[0], holder);
                holder.start();
            }
            holder.steps.add(words);
        }
        Runtime.getRuntime().halt(0);
    }

    private void say(String text) {
        synchronized (System.out) {
            System.out.print(name + " " + text.replace('\n', ' ') + "\n");
            System.out.flush();
        }
    }

    @Override
    public void run() {
        while (true) {
            try {
                say(("ok " + step(steps.take())).trim());
            } catch (StaleException e) {
                say("stale " + e.getMessage());
            } catch (Exception e) {
                say("error " + e);
            }
        }
    }

    private String step(String[] words) throws Exception {
        switch (words[1]) {
            case "open":
                client = CuratorFrameworkFactory.newClient(words[2], Integer.parseInt(words[3]), Integer.parseInt(words[3]),
                        new RetryForever(RETRY_MS));
                client.start();
                client.blockUntilConnected();
                mutex = new FencedMutex(client, words[4]); // was: InterProcessMutex
                return "";
            case "lock":
                if (!mutex.acquire(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)) {
                    throw new IllegalStateException("the lock was not free in time");
                }
                Grant grant = mutex.grant();
                grant.lost().thenAccept(loss -> say("lost"));
                return "" + grant.token();
            case "held":
                return "" + mutex.grant().isHeld();
            case "unlock":
                mutex.release();
                return "";
            case "close":
                client.close();
                return "";
            default:
                Counter counter = counter(words[2], words[3]);
                long token = Long.parseLong(words[5]);
                if (words[1].equals("read")) {
                    return "" + counter.read(words[4], token);
                }
                counter.write(words[4], token, words[6]);
                return "";
        }
    }

    /** The counters of a store. */
    private interface Counter {
        long read(String resource, long token) throws Exception;

        void write(String resource, long token, String count) throws Exception;
    }

    private static Counter counter(String kind, String at) throws IOException {
        synchronized (COUNTERS) {
            Counter counter = COUNTERS.get(kind);
            if (counter == null) {
                counter = open(kind, at);
                COUNTERS.put(kind, counter);
            }
            return counter;
        }
    }

    private static Counter open(String kind, String at) throws IOException {
        switch (kind) {
            case "file":
                return new InFile(Paths.get(at));
            case "sqlite":
                return new InTable("jdbc:sqlite:" + at + "/%s.db?busy_timeout=60000");
            case "mariadb":
                return new InTable("jdbc:mariadb://" + at + "/test?user=root");
            case "postgresql":
                return new InTable("jdbc:postgresql://" + at + "/postgres?user=postgres");
            case "redis":
                return new InRedis(at);
            case "etcd":
                return new InEtcd("http://" + at);
            default:
                return new InObjects(at);
        }
    }

    private static long number(byte[] digits) {
        return digits == null || digits.length == 0 ? 0 : Long.parseLong(new String(digits, StandardCharsets.UTF_8).trim());
    }

    private static final class InFile implements Counter {
        private final Path dir;

        InFile(Path dir) {
            this.dir = dir;
        }

        @Override
        public long read(String resource, long token) throws Exception {
            long[] count = new long[1];
            Path file = dir.resolve(resource + ".count");
            new FileFence(dir.resolve(resource)).run(resource, token, () -> {
                if (Files.exists(file)) {
                    count[0] = number(Files.readAllBytes(file));
                }
            });
            return count[0];
        }

        @Override
        public void write(String resource, long token, String count) throws Exception {
            new FileFence(dir.resolve(resource)).run(resource, token, () -> Files.write(dir.resolve(resource + ".count"),
                    count.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static final class InTable implements Counter {
        private final String url;

        InTable(String url) {
            this.url = url;
        }

        private void run(String resource, long token, Statements work) throws Exception {
            new TableFence(Agent.source(String.format(url, resource))).run(resource, token, connection -> work.run(connection));
        }

        /** What is done in the transaction. */
        private interface Statements {
            void run(Connection connection) throws SQLException;
        }

        @Override
        public long read(String resource, long token) throws Exception {
            long[] count = new long[1];
            run(resource, token, connection -> {
                try (Statement s = connection.createStatement();
                        ResultSet row = s.executeQuery("SELECT count FROM counter WHERE resource = '" + resource + "'")) {
                    row.next();
                    count[0] = row.getLong(1);
                }
            });
            return count[0];
        }

        @Override
        public void write(String resource, long token, String count) throws Exception {
            run(resource, token, connection -> {
                try (Statement s = connection.createStatement()) {
                    s.executeUpdate("UPDATE counter SET count = " + count + " WHERE resource = '" + resource + "'");
                }
            });
        }
    }

    private static final class InRedis implements Counter {
        private final RedisFence fence;

        InRedis(String at) {
            fence = new RedisFence((script, keys, args) -> Agent.eval(at, script, keys, args));
        }

        @Override
        public long read(String resource, long token) throws Exception {
            List<String> keys = Collections.singletonList(COUNT + resource);
            // Agent.eval reads no empty reply, which is GET's if there is no counter yet.
            if (fence.run(resource, token, "EXISTS", keys).equals(0L)) {
                return 0;
            }
            return Long.parseLong(fence.run(resource, token, "GET", keys).toString());
        }

        @Override
        public void write(String resource, long token, String count) throws Exception {
            fence.run(resource, token, "SET", Collections.singletonList(COUNT + resource), count);
        }
    }

    private static final class InEtcd implements Counter {
        private final String url;
        private final EtcdFence fence;

        InEtcd(String url) {
            this.url = url;
            fence = new EtcdFence(url);
        }

        @Override
        public long read(String resource, long token) throws Exception {
            fence.check(resource, token);
            Base64.Encoder base64 = Base64.getEncoder();
            String body = "{\"key\":\"" + base64.encodeToString((COUNT + resource).getBytes(StandardCharsets.UTF_8)) + "\"}";
            Http.Answer answer = Http.PLAIN.send("POST", url + "/v3/kv/range", Collections.emptyMap(),
                    body.getBytes(StandardCharsets.UTF_8));
            String text = new String(answer.body, StandardCharsets.UTF_8);
            int at = text.indexOf("\"value\":\"");
            if (answer.status != 200) {
                throw new IOException(text);
            }
            return at < 0 ? 0 : number(Base64.getDecoder().decode(text.substring(at + 9, text.indexOf('"', at + 9))));
        }

        @Override
        public void write(String resource, long token, String count) throws Exception {
            fence.put(resource, token, Collections.singletonMap(COUNT + resource, count));
        }
    }

    private static final class InObjects implements Counter {
        private final ObjectsFence fence;

        InObjects(String at) throws IOException {
            fence = new ObjectsFence(new HttpStore(at, Http.PLAIN), "java-" + System.nanoTime() + "-");
        }

        @Override
        public long read(String resource, long token) throws Exception {
            fence.check(resource, token);
            return number(fence.get(resource));
        }

        @Override
        public void write(String resource, long token, String count) throws Exception {
            fence.put(resource, token, count.getBytes(StandardCharsets.UTF_8));
        }
    }
}
