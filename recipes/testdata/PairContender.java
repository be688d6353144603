// Holds locks of Java libraries for live_pairs_test.go.
//
//     java PairContender SERVER
//
// Lines on standard input: "lock ID SIDE FORM PATH", answered with "in ID" when the lock is held, or "failed ID REASON";
// and "unlock ID", answered with "out ID". SIDE is 0 or 1: each has a session of its own.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

public class PairContender {
    interface Held {
        void release() throws Exception;
    }

    static CuratorFramework[] clients = new CuratorFramework[2];
    static ConcurrentHashMap<String, CountDownLatch> releases = new ConcurrentHashMap<>();

    static Held acquire(InterProcessLock lock) throws Exception {
        lock.acquire();
        return lock::release;
    }

    static Held acquire(CuratorFramework client, String form, String path) throws Exception {
        switch (form) {
        case "InterProcessMutex":
            return acquire(new InterProcessMutex(client, path));
        case "SharedMutex":
            return acquire(new SharedMutex(client, path));
        case "writeLock":
            return acquire(new InterProcessReadWriteLock(client, path).writeLock());
        case "readLock":
            return acquire(new InterProcessReadWriteLock(client, path).readLock());
        case "InterProcessSemaphoreV2":
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 1);
            Lease lease = semaphore.acquire();
            return () -> semaphore.returnLease(lease);
        case "WriteLock":
            CountDownLatch held = new CountDownLatch(1);
            WriteLock lock = new WriteLock(client.getZookeeperClient().getZooKeeper(), path, null, new LockListener() {
                public void lockAcquired() {
                    held.countDown();
                }

                public void lockReleased() {}
            });
            lock.lock();
            held.await();
            return lock::unlock;
        default:
            throw new IllegalArgumentException(form);
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }

    public static void main(String[] args) throws Exception {
        for (int side = 0; side < clients.length; side++) {
            clients[side] = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
            clients[side].start();
        }
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String id = words[1];
            if (words[0].equals("unlock")) {
                releases.get(id).countDown();
                continue;
            }
            releases.put(id, new CountDownLatch(1));
            Thread thread = new Thread(() -> {
                try {
                    Held held = acquire(clients[Integer.parseInt(words[2])], words[3], words[4]);
                    say("in " + id);
                    releases.get(id).await();
                    held.release();
                    say("out " + id);
                } catch (Exception e) {
                    say("failed " + id + " " + e);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }
}
