package jepsen

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestObservers uses a cluster of three voters through two observers: they serve reads, writes,
// watches, locks and sessions, their end harms nobody, and they never count.
func TestObservers(t *testing.T) {
	target := findTarget(t, *targetFlag)
	sum := sha1.Sum([]byte("super:pw"))
	l := newLabWith(t, 2*time.Minute, ClusterConfig{Target: target, Members: 3, TickTime: time.Second,
		Extra: []string{"reconfigEnabled=true",
			"minSessionTimeout=1000", "DigestAuthenticationProvider.superDigest=super:" +
				base64.StdEncoding.EncodeToString(sum[:])}})
	connect := func(m *Member) *zk.Conn {
		t.Helper()
		return openClient(t, 6*time.Second, m.ClientAddr).Conn
	}
	need := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	voters := append([]*Member(nil), l.cluster.Members()...)
	admin := connect(voters[0])
	need(admin.AddAuth("digest", []byte("super:pw")))
	var observers []*Member
	for range 2 {
		o, err := l.cluster.join(true, voters...)
		need(err)
		_, err = admin.IncrementalReconfig([]string{o.Line()}, nil, -1)
		need(err)
		need(o.AwaitServing(l.ctx))
		observers = append(observers, o)
	}
	a, b := connect(observers[0]), connect(observers[1])

	_, err := a.Create("/o", []byte("1"), 0, zk.WorldACL(zk.PermAll))
	need(err)
	_, err = b.Sync("/o")
	need(err)
	data, _, events, err := b.GetW("/o")
	need(err)
	_, err = admin.Set("/o", []byte("2"), 0)
	need(err)
	if e := <-events; string(data) != "1" || e.Type != zk.EventNodeDataChanged {
		t.Fatalf("%q, then %v", data, e)
	}
	first, second := zk.NewLock(a, "/lock", zk.WorldACL(zk.PermAll)), zk.NewLock(b, "/lock", zk.WorldACL(zk.PermAll))
	need(first.Lock())
	got := make(chan error, 1)
	go func() { got <- second.Lock() }()
	need(Poll(l.ctx, 10*time.Millisecond, func() error {
		queue, _, err := admin.Children("/lock")
		if err == nil && len(queue) != 2 {
			err = fmt.Errorf("%d nodes in the queue", len(queue))
		}
		return err
	}))
	select {
	case <-got:
		t.Fatal("two clients of observers hold one lock")
	default:
	}
	need(first.Unlock())
	need(<-got)

	for _, m := range l.cluster.Members() {
		text, err := FourLetter(l.ctx, m.ClientAddr, "mntr")
		need(err)
		observer := m == observers[0] || m == observers[1]
		if strings.Contains(text, "zk_server_state\tobserver") != observer {
			t.Errorf("%s:\n%s", m, text)
		}
		if strings.Contains(text, "zk_server_state\tleader") &&
			!(strings.Contains(text, "zk_synced_observers\t2\n") &&
				strings.Contains(text, "zk_synced_followers\t2\n")) {
			t.Errorf("%s:\n%s", m, text)
		}
		if target.Name == "lockkeeper" && !strings.Contains(text, "zk_quorum_size\t3\n") {
			t.Errorf("%s:\n%s", m, text)
		}
	}

	// Without observers nothing is missing.
	for _, o := range observers {
		need(o.Kill())
	}
	_, err = admin.Set("/o", []byte("3"), -1)
	need(err)
	for _, o := range observers {
		need(o.Restart(l.ctx))
	}
	// And with all of them there is no majority of voters on the side of one voter.
	need(voters[1].Kill())
	need(voters[2].Kill())
	need(Poll(l.ctx, 50*time.Millisecond, func() error {
		for _, m := range []*Member{voters[0], observers[0], observers[1]} {
			if mode, err := m.Mode(l.ctx); err == nil {
				return fmt.Errorf("%s still serves, as %s", m, mode)
			}
		}
		return nil
	}))
	need(voters[1].Start())
	need(voters[2].Start())
	need(l.cluster.AwaitServing(l.ctx))
	need(Poll(l.ctx, 50*time.Millisecond, func() error {
		data, _, err := b.Get("/o")
		if err == nil && string(data) != "3" {
			err = fmt.Errorf("%q", data)
		}
		return err
	}))
}
