// Measures Curator's InterProcessMutex, for libraries.go.
//
//     java -cp ... CuratorBench.java SERVERS PATH CONTENDERS WARM_UP_MS MS
//
// Each contender has a client of its own, and acquires and releases the lock again and again. It
// prints how often that was done in MS milliseconds, after a warm-up.

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

public class CuratorBench {
    public static void main(String[] args) throws Exception {
        AtomicLong done = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new RetryNTimes(10, 100));
            client.start();
            client.blockUntilConnected();
            InterProcessMutex lock = new InterProcessMutex(client, args[1]);
            threads.add(new Thread(() -> {
                try {
                    while (true) {
                        lock.acquire();
                        lock.release();
                        done.incrementAndGet();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            }));
        }
        for (Thread t : threads) {
            t.start();
        }
        Thread.sleep(Long.parseLong(args[3]));
        long before = done.get();
        Thread.sleep(Long.parseLong(args[4]));
        System.out.println(done.get() - before);
        System.exit(0);
    }
}
