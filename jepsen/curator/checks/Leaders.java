import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/** LeaderLatch and LeaderSelector: at most one leads, and when it goes another one does. */
final class Leaders {
    private Leaders() {}

    static void add(Suite s) {
        s.check("Leaders/LeaderLatch", Leaders::latch);
        s.check("Leaders/LeaderLatch gives up when its session expires", Leaders::latchExpired);
        s.check("Leaders/LeaderSelector", Leaders::selector);
        s.check("Leaders/LeaderSelector is interrupted", Leaders::selectorInterrupted);
        s.check("Leaders/LeaderSelector gives up when its session expires", Leaders::selectorExpired);
    }

    static LeaderLatch latch(Bench b, CuratorFramework c, String id, Events events) throws Exception {
        LeaderLatch latch = b.keep(new LeaderLatch(c, b.path, id, LeaderLatch.CloseMode.NOTIFY_LEADER));
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                events.add(id + " leads");
            }

            @Override
            public void notLeader() {
                events.add(id + " does not lead");
            }
        });
        latch.start();
        return latch;
    }

    private static Map<String, Boolean> participants(LeaderLatch latch) throws Exception {
        Map<String, Boolean> all = new TreeMap<>();
        for (Participant p : latch.getParticipants()) {
            all.put(p.getId(), p.isLeader());
        }
        return all;
    }

    private static void latch(Bench b) throws Exception {
        Events mine = new Events();
        LeaderLatch one = latch(b, b.client(), "one", mine);
        mine.expect("one leads");
        Events events = new Events();
        CuratorFramework second = b.client();
        LeaderLatch two = latch(b, second, "two", events);
        Bench.awaitEqual("the participants", Map.of("one", true, "two", false), () -> participants(one));
        LeaderLatch three = latch(b, b.client(), "three", events);
        Bench.awaitEqual("the participants", Map.of("one", true, "two", false, "three", false), () -> participants(one));
        Bench.that("the second does not lead", !two.await(Bench.MOMENT_MS, TimeUnit.MILLISECONDS) && !two.hasLeadership());
        Bench.sync(second);
        Bench.equal("the leader", "one", two.getLeader().getId());
        mine.none();
        events.none();
        // Closing gives its node up in the background before it tells its listener, so another one
        // may be told first.
        one.close();
        mine.expect("one does not lead");
        events.expect("two leads");
        Bench.that("only the second leads", two.hasLeadership() && !one.hasLeadership() && !three.hasLeadership());
        second.close();
        events.until("three leads");
        Bench.that("the third leads", three.await(Bench.PATIENCE_MS, TimeUnit.MILLISECONDS));
        Bench.awaitEqual("the participants", Map.of("three", true), () -> participants(three));
    }

    private static void latchExpired(Bench b) throws Exception {
        Events mine = new Events();
        Events others = new Events();
        CuratorFramework first = b.client();
        LeaderLatch one = latch(b, first, "one", mine);
        mine.expect("one leads");
        LeaderLatch two = latch(b, b.client(), "two", others);
        Bench.awaitEqual("the participants", Map.of("one", true, "two", false), () -> participants(two));
        Bench.expire(first);
        mine.expect("one does not lead");
        others.expect("two leads");
        // It is back, behind the other one.
        Bench.awaitEqual("the participants", Map.of("one", false, "two", true), () -> participants(two));
        two.close();
        mine.until("one leads");
        Bench.that("the first leads again", one.hasLeadership());
    }

    /** Leads until it is told to stop. */
    private static final class Candidate extends LeaderSelectorListenerAdapter {
        final LeaderSelector selector;
        private final AtomicInteger leaders;
        private final Events events;
        private final BlockingQueue<String> stop = new LinkedBlockingQueue<>();

        Candidate(Bench b, CuratorFramework c, String id, AtomicInteger leaders, Events events) {
            this.leaders = leaders;
            this.events = events;
            selector = b.keep(new LeaderSelector(c, b.path, this));
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
        }

        @Override
        public void takeLeadership(CuratorFramework c) throws Exception {
            int now = leaders.incrementAndGet();
            events.add(selector.getId() + " leads, one of " + now);
            try {
                stop.take();
            } catch (InterruptedException e) {
                events.add(selector.getId() + " is interrupted");
                throw e;
            } finally {
                leaders.decrementAndGet();
            }
        }

        void stop() {
            stop.add("");
        }
    }

    private static void awaitParticipants(Candidate c, int want) throws Exception {
        Bench.awaitEqual("how many participate", want, () -> c.selector.getParticipants().size());
    }

    private static void selector(Bench b) throws Exception {
        AtomicInteger leaders = new AtomicInteger();
        Events events = new Events();
        Candidate one = new Candidate(b, b.client(), "one", leaders, events);
        events.expect("one leads, one of 1");
        Candidate two = new Candidate(b, b.client(), "two", leaders, events);
        awaitParticipants(one, 2);
        for (int i = 0; i < 3; i++) {
            events.none();
            Bench.awaitEqual("the leader", "one", () -> two.selector.getLeader().getId());
            one.stop();
            events.expect("two leads, one of 1");
            Bench.that("it knows", two.selector.hasLeadership());
            awaitParticipants(two, 2);
            events.none();
            two.stop();
            events.expect("one leads, one of 1");
            awaitParticipants(two, 2);
        }
    }

    private static void selectorInterrupted(Bench b) throws Exception {
        AtomicInteger leaders = new AtomicInteger();
        Events events = new Events();
        Candidate one = new Candidate(b, b.client(), "one", leaders, events);
        events.expect("one leads, one of 1");
        Candidate two = new Candidate(b, b.client(), "two", leaders, events);
        awaitParticipants(one, 2);
        one.selector.interruptLeadership();
        events.expect("one is interrupted", "two leads, one of 1");
        one.selector.close();
        awaitParticipants(two, 1);
        two.stop();
        events.expect("two leads, one of 1");
    }

    private static void selectorExpired(Bench b) throws Exception {
        AtomicInteger leaders = new AtomicInteger();
        Events mine = new Events();
        Events others = new Events();
        CuratorFramework first = b.client();
        Candidate one = new Candidate(b, first, "one", leaders, mine);
        mine.expect("one leads, one of 1");
        Candidate two = new Candidate(b, b.client(), "two", new AtomicInteger(), others);
        awaitParticipants(two, 2);
        Bench.expire(first);
        mine.expect("one is interrupted");
        others.expect("two leads, one of 1");
        awaitParticipants(two, 2);
        two.stop();
        mine.expect("one leads, one of 1");
        Bench.that("it knows", one.selector.hasLeadership());
    }
}
