// A contender of Curator's locks, for live_foreign_test.go.
//
//     java -cp ... CuratorContender.java SERVER PATH ROUNDS KIND...
//
// KIND is mutex, read, write, lease=N (a semaphore of N leases), or shared (a
// semaphore whose number of leases is in the node PATH-count). Of several, the
// rounds take turns.
//
// Each round it prints "enter TOKEN KIND" while it holds the lock, waits for a line,
// prints "leave", waits for a line, and releases. TOKEN is 0 where Curator does not
// tell the node.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;

public class CuratorContender {
    // The path of the node is for subclasses only.
    static class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    static BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

    static void inside(String words) throws Exception {
        System.out.println("enter " + words);
        in.readLine();
        System.out.println("leave");
        in.readLine();
    }

    static void hold(InterProcessMutex lock, String kind) throws Exception {
        lock.acquire();
        inside("0 " + kind);
        lock.release();
    }

    static void hold(InterProcessSemaphoreV2 semaphore) throws Exception {
        Lease lease = semaphore.acquire();
        inside("0 lease");
        semaphore.returnLease(lease);
    }

    public static void main(String[] args) throws Exception {
        String path = args[1];
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
        client.start();
        Mutex mutex = new Mutex(client, path);
        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(client, path);
        SharedCount count = null;
        System.out.println("ready");
        in.readLine();
        for (int i = Integer.parseInt(args[2]); i > 0; i--) {
            String kind = args[3 + i % (args.length - 3)];
            if (kind.equals("mutex")) {
                mutex.acquire();
                inside(client.checkExists().forPath(mutex.node()).getCzxid() + " write");
                mutex.release();
            } else if (kind.equals("read")) {
                hold(rw.readLock(), kind);
            } else if (kind.equals("write")) {
                hold(rw.writeLock(), kind);
            } else if (kind.equals("shared")) {
                if (count == null) {
                    count = new SharedCount(client, path + "-count", 1);
                    count.start();
                }
                hold(new InterProcessSemaphoreV2(client, path, count));
            } else {
                hold(new InterProcessSemaphoreV2(client, path, Integer.parseInt(kind.substring("lease=".length()))));
            }
        }
        if (count != null) {
            count.close();
        }
        client.close();
        System.out.println("done");
    }
}
