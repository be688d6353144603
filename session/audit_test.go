package session

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// auditor keeps the records, each as one line.
type auditor struct {
	mu    sync.Mutex
	lines []string
}

func (a *auditor) Audit(r *AuditRecord) {
	line := strings.Join(r.Users, ",") + " " + r.Operation
	for _, word := range []string{r.Path, r.Mode} {
		if word != "" {
			line += " " + word
		}
	}
	if r.ACL != nil {
		line += fmt.Sprintf(" %d ACL", len(r.ACL))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, line+" "+string(r.Result))
}

func (a *auditor) expect(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.lines, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(a.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
	a.lines = nil
}

// Every request that would change something has a record, also when it is refused before it enters
// the log, and also when its client has gone before it is applied.
func TestChangesAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &auditor{}
		m, r := newMember(t, Config{Audit: a})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, create("/a", wire.ModePersistent))
		c.send(wire.OpCreate, create("/a", wire.ModePersistent))
		c.send(wire.OpCreate2, create("/e-", wire.ModeEphemeralSequential))
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/a"})
		c.send(wire.OpCreate, create("/b", 99))
		c.send(wire.OpSetACL, wire.SetACLRequest{Path: "/a", ACL: wire.OpenACL, Version: 7})
		a.expect(t, "127.0.0.1 create /a persistent success", "127.0.0.1 create /a persistent failure",
			"127.0.0.1 create /e-0000000001 ephemeral_sequential success", "127.0.0.1 create /b failure",
			"127.0.0.1 setAcl /a 1 ACL failure")

		if err := c.submit(wire.AppendRequest(nil, wire.XidAuth, wire.OpAuth,
			wire.AuthPacket{Scheme: "digest", Auth: []byte("ann:secret")})[4:]); err != nil {
			t.Fatal(err)
		}
		r.setHold(true)
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/a", Version: -1})
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
		c.detach()
		r.setHold(false)
		a.expect(t, "ann,127.0.0.1 setData /a success", "ann,127.0.0.1 delete /a success")
		m.audit.mu.Lock()
		if n := len(m.audit.unanswered); n != 0 {
			t.Errorf("%d connections are remembered", n)
		}
		m.audit.mu.Unlock()
		time.Sleep(time.Minute) // of the bubble: the session expires
		a.expect(t, " "+auditExpiry+" /e-0000000001 success")
	})
}

// The last unanswered write of a connection that has ended is forgotten when it is applied, even if
// the connection ends in the same moment.
func TestUnansweredWritesAreForgotten(t *testing.T) {
	for _, here := range []bool{true, false} {
		var trail auditTrail
		trail.init(&auditor{}, new(Auth))
		trail.left(1, 2, 7)
		for _, test := range []struct {
			seq, generation uint64
			sent            bool
			left            int
		}{{6, 1, here, 1}, {6, 2, true, 1}, {7, 2, true, 0}, {8, 2, here, 0}} {
			c := &znode.Command{Session: 1, Generation: test.generation, Seq: test.seq}
			if got := trail.sentHere(c, here); got != test.sent || len(trail.unanswered) != test.left {
				t.Errorf("connected: %t, %+v: sent here: %t, %d remembered", here, test, got, len(trail.unanswered))
			}
		}
	}
}

// A multi has a record for each part that has changed something, or one that says that it failed.
func TestMultiIsAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &auditor{}
		m, _ := newMember(t, Config{Audit: a})
		c := mustConnect(t, m, 10*time.Second)
		ops := []wire.MultiOp{
			{Op: wire.OpCreate, Record: create("/m-", wire.ModePersistentSequential)},
			{Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: "/", Version: -1}},
			{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/m-0000000000", Version: -1}},
			{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: "/m-0000000000", Version: -1}},
		}
		c.send(wire.OpMulti, wire.MultiRequest{Ops: ops})
		a.expect(t, "127.0.0.1 create /m-0000000000 persistent_sequential success",
			"127.0.0.1 setData /m-0000000000 success", "127.0.0.1 delete /m-0000000000 success")
		c.send(wire.OpMulti, wire.MultiRequest{Ops: ops[2:]})
		a.expect(t, "127.0.0.1 multiOperation failure")
	})
}
