// A contender of Curator's InterProcessMutex, for live_test.go.
//
//     java -cp ... CuratorContender.java SERVER PATH ROUNDS
//
// Each round it prints "enter TOKEN" while it holds the lock, waits for a line,
// prints "leave", waits for a line, and releases.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
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

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
        client.start();
        Mutex mutex = new Mutex(client, args[1]);
        System.out.println("ready");
        in.readLine();
        for (int i = Integer.parseInt(args[2]); i > 0; i--) {
            mutex.acquire();
            System.out.println("enter " + client.checkExists().forPath(mutex.node()).getCzxid());
            in.readLine();
            System.out.println("leave");
            in.readLine();
            mutex.release();
        }
        client.close();
        System.out.println("done");
    }
}
