import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Curator with TLS, by system properties: takes a lock and releases it. */
public class Locker {
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 20000, new RetryOneTime(100))) {
            client.start();
            InterProcessMutex mutex = new InterProcessMutex(client, "/curator");
            if (!mutex.acquire(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not acquired");
            }
            mutex.release();
            System.out.println("released");
        }
    }
}
