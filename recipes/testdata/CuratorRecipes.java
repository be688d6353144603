// Curator's recipes that are no locks, for live_nolock_foreign_test.go.
//
//     java -cp ... CuratorRecipes.java SERVER
//
// It does what stdin says, a line at a time, and says one line when that is done:
//
//     add PATH N             value N
//     set PATH | remove PATH | wait PATH      done        (DistributedBarrier)
//     enter PATH N           entered
//     leave                  left
//     join PATH ID DATA      joined
//     members                members ID=DATA,...     (sorted)
//     quit                   gone
//     stand PATH ID          standing
//     await                  leads CZXID
//     leader                 leader ID
//     resign                 resigned

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.retry.RetryNTimes;

public class CuratorRecipes {
    static CuratorFramework client;
    static DistributedDoubleBarrier barrier;
    static GroupMember member;
    static LeaderLatch latch;

    static String run(String[] a) throws Exception {
        switch (a[0]) {
            case "add":
                DistributedAtomicLong n = new DistributedAtomicLong(client, a[1], new RetryNTimes(1000, 5));
                AtomicValue<Long> v = n.add(Long.valueOf(a[2]));
                return v.succeeded() ? "value " + v.postValue() : "not succeeded";
            case "set":
                new DistributedBarrier(client, a[1]).setBarrier();
                return "done";
            case "remove":
                new DistributedBarrier(client, a[1]).removeBarrier();
                return "done";
            case "wait":
                new DistributedBarrier(client, a[1]).waitOnBarrier();
                return "done";
            case "enter":
                barrier = new DistributedDoubleBarrier(client, a[1], Integer.parseInt(a[2]));
                barrier.enter();
                return "entered";
            case "leave":
                barrier.leave();
                return "left";
            case "join":
                member = new GroupMember(client, a[1], a[2], a[3].getBytes());
                member.start();
                return "joined";
            case "members":
                StringBuilder all = new StringBuilder("members ");
                for (Map.Entry<String, byte[]> e : new TreeMap<>(member.getCurrentMembers()).entrySet()) {
                    all.append(e.getKey()).append('=').append(new String(e.getValue())).append(',');
                }
                return all.toString();
            case "quit":
                member.close();
                return "gone";
            case "stand":
                latch = new LeaderLatch(client, a[1], a[2]);
                latch.start();
                return "standing";
            case "await":
                latch.await();
                return "leads " + client.checkExists().forPath(latch.getOurPath()).getCzxid();
            case "leader":
                return "leader " + latch.getLeader().getId();
            case "resign":
                latch.close();
                return "resigned";
        }
        return "unknown command";
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        client = CuratorFrameworkFactory.newClient(args[0], new RetryNTimes(10, 100));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null;) {
            try {
                System.out.println(run(line.split(" ")));
            } catch (Exception e) {
                System.out.println("error " + e);
                e.printStackTrace();
            }
        }
        client.close();
    }
}
