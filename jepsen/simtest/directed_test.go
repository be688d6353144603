package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
	"lockkeeper/znode"
)

// The scenarios of this file each aim at one thing that the random simulations
// meet only now and then.

// pipes adds pipeliners to a cluster, each on a host of its own, until stop is
// called; it returns when the last has ended.
func (c *cluster) pipes(n int, timeout time.Duration, server func(i int) string) (list []*pipeliner, stop func()) {
	var work sync.WaitGroup
	over := make(chan struct{})
	for i := range n {
		host := fmt.Sprintf("10.0.2.%d", i+1)
		c.net.Host(host)
		p := newPipeliner(c, host, timeout, rand.New(rand.NewPCG(1, uint64(i))), func() string { return server(i) })
		list = append(list, p)
		work.Go(func() {
			defer p.close()
			for {
				select {
				case <-over:
					return
				default:
					p.work()
				}
			}
		})
	}
	return list, func() { close(over); work.Wait() }
}

// awaitLeader waits until a majority follows somebody.
func (c *cluster) awaitLeader() *member {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if l := c.leader(); l != nil {
			return l
		}
	}
	c.t.Error("no leader within 30 s")
	return c.members[0]
}

// The second half of C5: however leaders come and go, a client of a member that
// survives keeps its connection, and has every request answered, once. Leaders
// are cut off, lose their power, are killed and are stopped.
func TestLeaderChangesDisturbNoOtherClient(t *testing.T) { leaderChanges(t, directedShape) }

// The same with members that prove to each other who they are.
func TestLeaderChangesWithSecret(t *testing.T) {
	s := directedShape
	s.secretFile = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(s.secretFile, []byte(strings.Repeat("secret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	leaderChanges(t, s)
}

func leaderChanges(t *testing.T, s shape) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(&recorder{T: t}, s, 1, newJournal(t, ""))
		// A session long enough for the lease to outlast an election.
		pipes, stop := c.pipes(len(c.members), 20*time.Second, func(i int) string { return c.members[i].clientAddr() })
		n := &nemesis{c: c, rng: rand.New(rand.NewPCG(1, 1))}
		ends := []func(*member) func(){
			n.isolate,
			func(m *member) func() { return n.down(m, (*member).powerCut) },
			func(m *member) func() { return n.down(m, (*member).kill) },
			func(m *member) func() { return n.down(m, (*member).stop) },
		}
		for i := range 6 * directedRounds {
			time.Sleep(5 * time.Second)
			l := c.awaitLeader()
			before := counts(pipes)
			undo := ends[i%len(ends)](l)
			time.Sleep(5 * time.Second)
			for j, now := range counts(pipes) {
				if c.members[j] == l {
					continue // its own clients may have had to leave
				}
				if now.broken != before[j].broken {
					t.Errorf("a client of m%d lost its connection when leader m%d went", j+1, l.id)
				}
				if now.replies == before[j].replies {
					t.Errorf("a client of m%d got no answer within 5 s of the end of leader m%d", j+1, l.id)
				}
			}
			undo()
			if t.Failed() {
				break
			}
		}
		stop()
		c.settled(30 * time.Second)
		c.members[0].running().view(func(s *znode.Store) {
			for _, p := range pipes {
				p.verify(s)
			}
		})
		c.shutdown()
	})
}

type pipeCount struct{ broken, replies int }

func counts(pipes []*pipeliner) (list []pipeCount) {
	for _, p := range pipes {
		p.mu.Lock()
		list = append(list, pipeCount{p.broken, p.replies})
		p.mu.Unlock()
	}
	return list
}

// C6, measured: a holder's member is cut off from the other two at some moment
// of the lease's cycle. Its library says that it is disconnected, and its Grant
// that it is lost, before the majority takes the session's nodes away.
func TestHolderLearnsBeforeExpiry(t *testing.T) {
	testHolderLearns(t, directedRounds, func(c *cluster, m *member, timeout time.Duration, rng *rand.Rand) {}, func(t *testing.T, least knowing) {
		if least.library < 0 || least.grant < 0 {
			t.Errorf("a holder learned too late: %+v", least)
		}
	})
}

// The same, while the way from the member to the client opens and closes. A byte
// that comes late makes the client's library believe too long, for it counts
// from when it receives; a member cannot prevent that, and C6 does not promise
// it. A Grant counts from when the client has asked, and stands it.
func TestGrantLearnsThoughAnswersAreDelayed(t *testing.T) {
	flap := func(c *cluster, m *member, timeout time.Duration, rng *rand.Rand) {
		some := func() { time.Sleep(time.Duration(rng.Int64N(int64(timeout / 2)))) }
		for start := time.Now(); time.Since(start) < 2*timeout; {
			some()
			c.net.Cut(m.name, holderHost)
			some()
			c.net.Heal(m.name, holderHost)
		}
	}
	testHolderLearns(t, max(3, directedRounds/2), flap, func(t *testing.T, least knowing) {
		if least.grant < 0 {
			t.Errorf("a grant stood too long: %+v", least)
		}
	})
}

const holderHost = "10.0.3.1"

// knowing is how long before its session's nodes went away a holder knew.
type knowing struct{ library, grant time.Duration }

func testHolderLearns(t *testing.T, rounds int, disturb func(*cluster, *member, time.Duration, *rand.Rand), check func(*testing.T, knowing)) {
	for _, timeout := range []time.Duration{4 * time.Second, 12 * time.Second, 40 * time.Second} {
		least, most := knowing{time.Hour, time.Hour}, knowing{}
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, newJournal(t, ""))
			c.net.Host(holderHost)
			rng := rand.New(rand.NewPCG(1, uint64(timeout)))
			for i := range rounds {
				m := c.awaitLeader()
				if i%3 > 0 { // mostly a follower
					m = c.members[int(m.id)%len(c.members)]
				}
				k := c.holderLearns(m, timeout, rng, disturb)
				least = knowing{min(least.library, k.library), min(least.grant, k.grant)}
				most = knowing{max(most.library, k.library), max(most.grant, k.grant)}
			}
			c.shutdown()
		})
		t.Logf("session of %v, %d times: before the end of the session the library knew for %v to %v, the grant for %v to %v",
			timeout, rounds, least.library.Round(time.Millisecond), most.library.Round(time.Millisecond),
			least.grant.Round(time.Millisecond), most.grant.Round(time.Millisecond))
		check(t, least)
	}
}

// holderLearns has a client of m hold a lock, cuts m off from the others after a
// while, and measures, to 20 ms, who knows when.
func (c *cluster) holderLearns(m *member, timeout time.Duration, rng *rand.Rand, disturb func(*cluster, *member, time.Duration, *rand.Rand)) (k knowing) {
	s, err := recipes.Connect(recipes.Config{
		Servers: []string{m.clientAddr()}, SessionTimeout: timeout, Dial: c.dialer(holderHost),
		HostProvider: &provider{rng: rand.New(rand.NewPCG(rng.Uint64(), 0))},
	})
	if err != nil {
		c.t.Errorf("connect: %v", err)
		return k
	}
	defer s.Close()
	defer c.net.HealAll()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g, err := recipes.NewMutex(s, lockPath, recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		c.t.Errorf("lock: %v", err)
		return k
	}
	conn := s.Conn().(*zk.Conn)
	session := conn.SessionID()
	majority := c.members[int(m.id)%len(c.members)]
	there := func() (yes bool) {
		majority.running().view(func(s *znode.Store) { _, yes = s.Node(g.Node()) })
		return yes
	}
	// A member that has just come back from the cut before this one may take a while to get there.
	for deadline := time.Now().Add(time.Minute); !there() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second + time.Duration(rng.Int64N(int64(timeout))))
	for _, o := range c.members {
		if o != m {
			c.net.Partition(m.name, o.name)
		}
	}
	var disturbing sync.WaitGroup
	defer disturbing.Wait()
	disturbing.Go(func() { disturb(c, m, timeout, rng) })
	var libraryKnew, grantKnew, gone time.Time
	first := func(at *time.Time, yes bool) {
		if yes && at.IsZero() {
			*at = time.Now()
		}
	}
	for deadline := time.Now().Add(4 * timeout); time.Now().Before(deadline) && (libraryKnew.IsZero() || grantKnew.IsZero() || gone.IsZero()); {
		time.Sleep(20 * time.Millisecond)
		first(&libraryKnew, conn.State() != zk.StateHasSession || conn.SessionID() != session)
		first(&grantKnew, !g.Held())
		first(&gone, !there())
	}
	if libraryKnew.IsZero() || grantKnew.IsZero() || gone.IsZero() {
		c.t.Errorf("after four times its timeout of %v: library knows %v, grant knows %v, node gone %v", timeout, libraryKnew, grantKnew, gone)
	}
	return knowing{gone.Sub(libraryKnew), gone.Sub(grantKnew)}
}

// A killed leader is replaced as soon as its connections end: nobody waits for a heartbeat timeout.
// The followers are under load, so that now one, now the other has more of the log.
func TestKilledLeaderIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, newJournal(t, ""))
		pipes, stop := c.pipes(len(c.members), 20*time.Second, func(i int) string { return c.members[i].clientAddr() })
		for _, p := range pipes {
			p.eager.Store(true)
		}
		for range 2 * directedRounds {
			old := c.awaitLeader()
			time.Sleep(time.Second)
			killed := time.Now()
			old.kill()
			for l := c.leader(); (l == nil || l == old) && time.Since(killed) < 10*time.Second; l = c.leader() {
				time.Sleep(time.Millisecond)
			}
			// The heartbeat timeout, a quarter of the tick, is 500 ms.
			if took := time.Since(killed); took > 250*time.Millisecond {
				t.Errorf("no leader for %v after m%d was killed", took, old.id)
			}
			old.start()
			c.settled(30 * time.Second)
		}
		stop()
		c.shutdown()
	})
}
