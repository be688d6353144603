package jepsen

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"lockkeeper/recipes"
)

// TestHangingMember stops one of three members with SIGSTOP, the leader or a follower: its kernel
// goes on accepting connections, and nobody answers them. A command that is told all three
// addresses gets its lock nevertheless within a few seconds, whichever member it tries first, and a
// holder that was connected to the member keeps its lock.
func TestHangingMember(t *testing.T) {
	if *targetFlag != "lockkeeper" {
		t.Skip("the holder keeps its lock because the next member answers at once, which ZooKeeper's elections do " +
			"not let it do")
	}
	for _, test := range []struct {
		session time.Duration
		leader  bool
	}{
		{4 * time.Second, false}, {4 * time.Second, true},
		{10 * time.Second, false}, {10 * time.Second, true},
	} {
		t.Run(fmt.Sprintf("%v/leader=%v", test.session, test.leader), func(t *testing.T) {
			t.Parallel() // they mostly wait
			l := newLab(t, 3)
			victim, err := l.cluster.AwaitLeader(l.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !test.leader {
				victim = l.cluster.Members()[victim.ID%3]
			}
			holder := l.holdAt(victim, test.session, "/held")
			if err := victim.Pause(l.ctx); err != nil {
				t.Fatal(err)
			}
			l.lockAll(test.session)
			// The holder's old proof would not last for so long.
			select {
			case <-holder.Lost():
				t.Errorf("the holder that was connected to the member has lost its lock: %v", holder.Err())
			case <-time.After(test.session):
			}
			if err := victim.Resume(); err != nil {
				t.Fatal(err)
			}
			if err := holder.Unlock(l.ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// inOrder has a session try the servers in their order, round and round.
type inOrder struct {
	first   string
	servers []string
	next    int
}

func (h *inOrder) Init(servers []string) error {
	h.servers = slices.Clone(servers)
	h.next = slices.Index(h.servers, h.first)
	return nil
}
func (h *inOrder) Len() int   { return len(h.servers) }
func (h *inOrder) Connected() {}
func (h *inOrder) Next() (string, bool) {
	h.next++
	return h.servers[(h.next-1)%len(h.servers)], false
}

// holdAt takes a lock in a session that is connected to a member, and knows all.
func (l *lab) holdAt(m *Member, session time.Duration, path string) *recipes.Grant {
	l.t.Helper()
	var servers []string
	for _, m := range l.cluster.Members() {
		servers = append(servers, m.ClientAddr)
	}
	s, err := recipes.Connect(recipes.Config{
		Servers: servers, SessionTimeout: session, HostProvider: &inOrder{first: m.ClientAddr},
		Dial: func(network, address string, timeout time.Duration) (net.Conn, error) {
			l.t.Logf("the holder dials %s at %v", address, time.Now().Format("05.000"))
			return net.DialTimeout(network, address, timeout)
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(s.Close)
	g, err := recipes.NewMutex(s, path, recipes.MutexOptions{}).Lock(l.ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

// lockAll runs commands that take locks of their own, more than there are orders in which to try
// three members.
func (l *lab) lockAll(session time.Duration) {
	const commands, bound = 8, 6 * time.Second
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	for n := range commands {
		wg.Go(func() {
			cmd := l.cluster.cfg.Target.Tool("lock", "-session", session.String(), "-servers", l.cluster.Servers(),
				fmt.Sprintf("/hang-%d", n), "true")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			began := time.Now()
			err := cmd.Run()
			took := time.Since(began)
			if err != nil || took > bound {
				l.t.Errorf("lockkeeper lock: %v after %v, want a lock within %v: %s", err, took, bound, out.String())
			}
			mu.Lock()
			all = append(all, took.Round(time.Millisecond))
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(all)
	l.t.Logf("figures: with one of three members stopped, %d commands with a session of %v took %v", commands, session,
		all)
}
