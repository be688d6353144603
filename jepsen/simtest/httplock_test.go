package simtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

const httpPort = 8080

// httpHost is the host of the user of a lock over HTTP.
const httpHost = "10.0.3.3"

// TestHTTPStreamEndsInTime has the member that serves the stream of a lock over HTTP cut off,
// suspended, killed, without power, and stopped, with and without a way to its client, while its
// wall clock jumps. The client knows that it has lost the lock, by the end of the stream or by its
// silence, before its session ends.
//
// Defends: C6.
func TestHTTPStreamEndsInTime(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	for _, timeout := range []time.Duration{1500 * time.Millisecond, 6 * time.Second} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClusterOf(&recorder{T: t}, shape{voters: 3, tick: 500 * time.Millisecond, snapCount: 300,
					trailing: 10_000, rest: 1, http: true}, 1, newJournal(t, ""))
				c.net.Host(httpHost)
				rng := rand.New(rand.NewPCG(scenarioSeed(), uint64(timeout)))
				n := &nemesis{c: c, rng: rng, members: c.members}
				faults := []func(*member) func(){
					n.isolate,
					func(m *member) func() {
						undo := n.isolate(m)
						c.net.Partition(m.name, httpHost)
						return undo
					},
					func(m *member) func() {
						undo := n.isolate(m)
						m.machine.suspend()
						time.Sleep(timeout * time.Duration(rng.IntN(100)) / 100)
						m.machine.wake()
						return undo
					},
					func(m *member) func() { return n.down(m, (*member).kill) },
					func(m *member) func() { return n.down(m, (*member).powerCut) },
					func(m *member) func() { return n.down(m, (*member).stop) },
				}
				least, rounds := time.Hour, 2*len(faults)*directedRounds
				for i := range rounds {
					margin := c.httpMargin(c.members[rng.IntN(3)], timeout, rng, faults[i%len(faults)])
					if least = min(least, margin); margin <= 0 || t.Failed() {
						t.Errorf("fault %d: a client relied on its lock for %v longer than its session lasted", i%len(faults), -margin)
						break
					}
				}
				t.Logf("%d times, the client knew %v before the end of its session, or earlier", rounds, least)
				c.shutdown()
			})
		})
	}
}

// httpMargin is how long before the session of a lock over HTTP ended its client knew.
func (c *cluster) httpMargin(m *member, timeout time.Duration, rng *rand.Rand, fault func(*member) (undo func())) time.Duration {
	defer c.net.HealAll()
	c.awaitLeader()
	b, err := c.believe(m, timeout)
	if err != nil {
		c.t.Errorf("after %v: m%d grants no lock though nothing is wrong: %v", c.journal.age(), m.id, err)
		return 0
	}
	defer b.close()
	time.Sleep(2*timeout + time.Duration(rng.Int64N(int64(time.Second))))
	if b.knows() {
		c.t.Errorf("after %v: the stream of m%d has ended though nothing is wrong", c.journal.age(), m.id)
		return 0
	}
	m.clock.Add(int64(time.Duration(rng.IntN(7200)-3600) * time.Second))
	var undo func()
	var harm sync.WaitGroup
	harm.Go(func() { undo = fault(m) })
	defer func() {
		harm.Wait()
		c.net.HealAll()
		undo()
		m.clock.Store(0)
		c.settled(30 * time.Second)
	}()
	other := c.members[int(m.id)%len(c.members)]
	alive := func() (yes bool) {
		other.running().view(func(s *znode.Store) { _, yes = s.Sessions().Get(b.session) })
		return yes
	}
	var knew, ended time.Time
	for deadline := time.Now().Add(4*timeout + 20*time.Second); knew.IsZero() || ended.IsZero(); time.Sleep(marginLook) {
		now := time.Now()
		if now.After(deadline) {
			c.t.Errorf("after %v: the client knew at %v, its session ended at %v", c.journal.age(), knew, ended)
			return 0
		}
		if knew.IsZero() && b.knows() {
			knew = now
		}
		if ended.IsZero() && !alive() {
			ended = now
		}
	}
	return ended.Sub(knew)
}

// httpBeliever is a client that holds a lock over HTTP, and does as docs/http-locks.md says.
type httpBeliever struct {
	session wire.SessionID
	body    io.Closer
	idle    func()
	done    sync.WaitGroup

	mu    sync.Mutex
	until time.Time // validMs after the newest line; zero: the stream has ended
}

// believe takes a lock at a member.
func (c *cluster) believe(m *member, timeout time.Duration) (*httpBeliever, error) {
	transport := &http.Transport{DialContext: c.net.Host(httpHost).Dial, DisableKeepAlives: true}
	url := fmt.Sprintf("http://%s:%d/v1/locks/sim?wait=1m&timeout=%v", m.name, httpPort, timeout)
	r, err := http.NewRequest(http.MethodPut, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	b := &httpBeliever{body: resp.Body, idle: transport.CloseIdleConnections}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !b.take(lines.Text()) {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, lines.Text())
	}
	b.done.Go(func() {
		for lines.Scan() && b.take(lines.Text()) {
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.until = time.Time{}
	})
	return b, nil
}

// take takes a line; false if it says that the lock is lost.
func (b *httpBeliever) take(text string) bool {
	var line struct {
		Event, Session string
		ValidMs        int64
	}
	if json.Unmarshal([]byte(text), &line) != nil || line.ValidMs == 0 {
		return false
	}
	if id, ok := strings.CutPrefix(line.Session, "0x"); ok {
		_, _ = fmt.Sscanf(id, "%x", &b.session)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.until.IsZero() && now.After(b.until) {
		return false // it has known that the lock is lost, and does not believe a late line
	}
	b.until = now.Add(time.Duration(line.ValidMs) * time.Millisecond)
	return true
}

// knows reports whether the client knows that the lock is lost.
func (b *httpBeliever) knows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !time.Now().Before(b.until)
}

func (b *httpBeliever) close() {
	_ = b.body.Close()
	b.done.Wait()
	b.idle()
}
