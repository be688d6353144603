// Says whether Curator's locks take their turn, for verdicts_test.go.
//
//     java -cp ... CuratorQueues.java SERVER

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.LockInternals;
import org.apache.curator.framework.recipes.locks.LockInternalsDriver;
import org.apache.curator.retry.RetryNTimes;

public class CuratorQueues {
    static CuratorFramework client;

    // The loop of an acquire: it sorts the children, and asks its driver about its node.
    static boolean gets(InterProcessMutex lock, String node) throws Exception {
        Field field = InterProcessMutex.class.getDeclaredField("internals");
        field.setAccessible(true);
        LockInternals internals = (LockInternals) field.get(lock);
        Method sorted = LockInternals.class.getDeclaredMethod("getSortedChildren");
        sorted.setAccessible(true);
        Method driver = LockInternals.class.getDeclaredMethod("getDriver");
        driver.setAccessible(true);
        Field most = LockInternals.class.getDeclaredField("maxLeases");
        most.setAccessible(true);
        @SuppressWarnings("unchecked")
        java.util.List<String> children = (java.util.List<String>) sorted.invoke(internals);
        return ((LockInternalsDriver) driver.invoke(internals)).getsTheLock(client, children, node, most.getInt(internals))
            .getsTheLock();
    }

    static boolean gets(String kind, String path, String node) throws Exception {
        switch (kind) {
            case "mutex":
                return gets(new InterProcessMutex(client, path), node);
            case "write":
                return gets(new InterProcessReadWriteLock(client, path).writeLock(), node);
            case "read":
                return gets(new InterProcessReadWriteLock(client, path).readLock(), node);
            case "latch":
                // The data of a latch's node are its id: here, its name.
                return new LeaderLatch(client, path).getLeader().getId().equals(node);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    public static void main(String[] args) throws Exception {
        client = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
        client.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            System.out.println(gets(words[0], words[1], words[2]) ? "in" : "waits");
        }
        client.close();
    }
}
