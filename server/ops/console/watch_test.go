package console

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// fakeMember is a member that has a tape's state and nobody connected.
type fakeMember struct {
	ops.Member
	*tape
	cfg      *zoocfg.Config
	sessions *session.Manager
}

func (m fakeMember) Config() *zoocfg.Config      { return m.cfg }
func (m fakeMember) View(f func(*znode.Store))   { f(m.s) }
func (m fakeMember) Sessions() *session.Manager  { return m.sessions }
func (fakeMember) Standing() ops.Standing        { return ops.Standing{Leader: 1, LeaderSeen: true} }
func (fakeMember) Connections() []ops.Connection { return nil }

// newConsole returns the console of a member with a tape's state.
func newConsole(p *tape, watchers, historyBytes int) *Console {
	m := fakeMember{tape: p, cfg: &zoocfg.Config{
		Cluster: zoocfg.Cluster{ID: 1},
		Console: zoocfg.Console{Watchers: watchers, HistoryBytes: historyBytes, IndexBytes: 1 << 30},
	},
		sessions: session.NewManager(session.Config{})}
	m.cfg.Limits.Memory = 1 << 30
	return New(ops.NewShared(m, door.New(door.Config{Settings: m.cfg, Sessions: m.sessions})), "test", p.r, nil)
}

const (
	benchLocks   = 10_000
	benchWaiters = 5 // of each
)

// manyLocks has that many locks and waiters. With few sessions each of them waits in every lock;
// else each contender has its own.
func manyLocks(b *testing.B, fewSessions bool) *tape {
	p := newTape(b, 8<<20)
	p.open(1)
	next := wire.SessionID(2)
	for i := range benchLocks {
		path := fmt.Sprintf("/t%04d", i)
		p.create(1, path, "", wire.ModePersistent)
		for k := range 1 + benchWaiters {
			id := wire.SessionID(1 + k)
			if !fewSessions {
				id = next
				next++
			}
			if p.seqs[id] == 0 && id != 1 {
				p.open(id)
			}
			p.create(id, path+"/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-", "", wire.ModeEphemeralSequential)
		}
	}
	return p
}

// BenchmarkWatchers is the cost of five watchers for a member, per tick of the hub, while a hundred
// contenders come and go between two ticks: the share of one core, and the time between two ticks.
func BenchmarkWatchers(b *testing.B) {
	for name, few := range map[string]bool{"sessions=60000": false, "sessions=6": true} {
		b.Run(name, func(b *testing.B) {
			p := manyLocks(b, few)
			c := newConsole(p, 16, 8<<20)
			defer c.Close()
			for _, q := range []string{"view=locks", "view=locks&sort=path", "view=lock&path=/t0007", "view=trouble", "view=history&path=/t0007"} {
				query, _ := url.ParseQuery(q)
				w := &watcher{key: q, view: query.Get("view"), query: query, viewer: &viewer{ctx: context.Background(), super: true},
					latest: make(chan message, 1), beats: make(chan []byte, 1)}
				c.hub.mu.Lock()
				c.hub.watchers[w] = true // tick is called here, not by run
				c.hub.mu.Unlock()
			}
			c.hub.tick(true)
			n := 0
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				for range 100 {
					n++
					node := p.create(1, fmt.Sprintf("/t%04d/x-1-", n%benchLocks), "", wire.ModeEphemeralSequential)
					p.request(1, wire.OpDelete, wire.DeleteRequest{Path: node, Version: -1})
				}
				b.StartTimer()
				begin := time.Now()
				c.hub.tick(n%400 == 0)
				spent += time.Since(begin)
			}
			perTick := spent.Seconds() / float64(b.N)
			period := max(everyMs/1000.0, restAfter*perTick)
			b.ReportMetric(100*perTick/period, "%core")
			b.ReportMetric(1000*period, "ms-between")
		})
	}
}

// BenchmarkFirstView is the time until the first answer, when nobody has looked before.
func BenchmarkFirstView(b *testing.B) {
	p := manyLocks(b, false)
	for b.Loop() {
		c := newConsole(p, 16, 0)
		if _, err := c.locks(url.Values{}, &viewer{ctx: context.Background(), super: true}, time.Now()); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
