package jepsen

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"slices"
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
	digest := base64.StdEncoding.EncodeToString(sum[:])
	o := &observed{lab: newLabWith(t, 2*time.Minute, ClusterConfig{
		Target: target, Members: 3, TickTime: time.Second, Extra: []string{"reconfigEnabled=true",
			"minSessionTimeout=1000", "DigestAuthenticationProvider.superDigest=super:" + digest},
	})}
	o.voters = append(o.voters, o.cluster.Members()...)
	o.admin = o.client(o.voters[0])
	o.need(o.admin.AddAuth("digest", []byte("super:pw")))
	for range 2 {
		m, err := o.cluster.join(true, o.voters...)
		o.need(err)
		_, err = o.admin.IncrementalReconfig([]string{m.Line()}, nil, -1)
		o.need(err)
		o.need(m.AwaitServing(o.ctx))
		o.observers = append(o.observers, m)
	}
	a, b := o.client(o.observers[0]), o.client(o.observers[1])
	o.serve(a, b)
	o.describe(target)
	o.neverCount(b)
}

// observed is a cluster with observers.
type observed struct {
	*lab
	voters, observers []*Member
	admin             *zk.Conn // of a voter; it may change the members
}

// client is a client of one member.
func (o *observed) client(m *Member) *zk.Conn {
	o.t.Helper()
	return openClient(o.t, 6*time.Second, m.ClientAddr).Conn
}

// need ends the test if err is not nil.
func (o *observed) need(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// serve checks that clients of the observers read, write, watch and lock.
func (o *observed) serve(a, b *zk.Conn) {
	t := o.t
	_, err := a.Create("/o", []byte("1"), 0, zk.WorldACL(zk.PermAll))
	o.need(err)
	_, err = b.Sync("/o")
	o.need(err)
	data, _, events, err := b.GetW("/o")
	o.need(err)
	_, err = o.admin.Set("/o", []byte("2"), 0)
	o.need(err)
	if e := <-events; string(data) != "1" || e.Type != zk.EventNodeDataChanged {
		t.Fatalf("%q, then %v", data, e)
	}
	first, second := zk.NewLock(a, "/lock", zk.WorldACL(zk.PermAll)), zk.NewLock(b, "/lock", zk.WorldACL(zk.PermAll))
	o.need(first.Lock())
	got := make(chan error, 1)
	go func() { got <- second.Lock() }()
	o.need(Poll(o.ctx, 10*time.Millisecond, func() error {
		queue, _, err := o.admin.Children("/lock")
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
	o.need(first.Unlock())
	o.need(<-got)
}

// describe checks the reports of all members.
func (o *observed) describe(target Target) {
	o.awaitSynced(2, 2)
	for _, m := range o.cluster.Members() {
		text, err := FourLetter(o.ctx, m.ClientAddr, "mntr")
		o.need(err)
		if strings.Contains(text, "zk_server_state\tobserver") != slices.Contains(o.observers, m) {
			o.t.Errorf("%s:\n%s", m, text)
		}
		if target.Name == "lockkeeper" && !strings.Contains(text, "zk_quorum_size\t3\n") {
			o.t.Errorf("%s:\n%s", m, text)
		}
	}
}

// neverCount checks that without observers nothing is missing, and that with all of them there is
// no majority on the side of one voter. b is a client of an observer.
func (o *observed) neverCount(b *zk.Conn) {
	for _, m := range o.observers {
		o.need(m.Kill())
	}
	o.awaitSynced(2, 0)
	_, err := o.admin.Set("/o", []byte("3"), -1)
	o.need(err)
	for _, m := range o.observers {
		o.need(m.Restart(o.ctx))
	}
	o.need(o.voters[1].Kill())
	o.need(o.voters[2].Kill())
	o.need(Poll(o.ctx, 50*time.Millisecond, func() error {
		for _, m := range []*Member{o.voters[0], o.observers[0], o.observers[1]} {
			if mode, err := m.Mode(o.ctx); err == nil {
				return fmt.Errorf("%s still serves, as %s", m, mode)
			}
		}
		return nil
	}))
	o.need(o.voters[1].Start())
	o.need(o.voters[2].Start())
	o.need(o.cluster.AwaitServing(o.ctx))
	o.need(Poll(o.ctx, 50*time.Millisecond, func() error {
		data, _, err := b.Get("/o")
		if err == nil && string(data) != "3" {
			err = fmt.Errorf("%q", data)
		}
		return err
	}))
}
