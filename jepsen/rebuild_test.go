package jepsen

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A member sets damaged files aside, and starts empty when it has lost them. Either way it gets the
// data and its vote from the others, one member after the other, while clients go on.
//
// Defends: C1.
func TestDisksAreReplaced(t *testing.T) {
	l := newLabWith(t, 3*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, TickTime: time.Second})
	s := l.startScribe("/scribe")
	l.writes(s, 100)
	for i, m := range slices.Concat(l.cluster.Members(), l.cluster.Members()) {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(m.dir, "data")
		damaged := i%2 == 0
		if damaged {
			flipByte(t, filepath.Join(data, "raft.db"), 4096+40)
		} else if err := removeAllBut(data, "myid"); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if err := m.AwaitServing(l.ctx); err != nil {
			t.Fatal(err)
		}
		l.awaitSynced(2, 0)
		if aside, _ := filepath.Glob(filepath.Join(data, "aside-*", "raft.db")); (len(aside) > 0) != damaged {
			t.Errorf("member %d has set aside %v", m.ID, aside)
		}
		l.writes(s, 50)
	}
	s.end(l)
	for _, m := range l.cluster.Members() {
		there := openClient(t, l.sessionTimeout, m.ClientAddr)
		if _, err := there.Sync("/scribe"); err != nil {
			t.Fatal(err)
		}
		if children, _, err := there.Children("/scribe"); err != nil || len(children) < s.count() {
			t.Errorf("member %d has %d nodes of %d (%v)", m.ID, len(children), s.count(), err)
		}
	}
}

// removeAllBut removes the files of a directory, but for one.
func removeAllBut(dir, name string) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if f.Name() != name {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

// With replaceDisks=false a member with a damaged log does not start, says how to rebuild it, and
// that works while clients go on.
func TestDamagedMemberIsRebuilt(t *testing.T) {
	l := newLabWith(t, 3*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3,
		TickTime: time.Second, Extra: []string{"reconfigEnabled=true", "skipACL=yes", "replaceDisks=false"}})
	s := l.startScribe("/scribe")
	l.writes(s, 100)
	m, others := l.cluster.Members()[2], l.cluster.Members()[:2]
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(m.dir, "data")
	// In the second meta page: bbolt would go on with the first.
	flipByte(t, filepath.Join(data, "raft.db"), 4096+40)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	l.logged(m, "not started: server: quorum: open log "+filepath.Join(data, "raft.db")+": damaged: ", 1)
	l.logged(m, "lockkeeper cluster remove 3", 1)
	p, _ := m.current()
	if err := Poll(l.ctx, 10*time.Millisecond, func() error {
		if p.Running() {
			return errors.New("it runs with a damaged log")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	binary := m.Command()[0]
	cluster := func(args ...string) {
		t.Helper()
		path := filepath.Join(l.dir, "cluster-"+args[0])
		cmd := exec.Command(binary, append(append([]string{"cluster"}, args...), "-servers", others[0].ClientAddr+","+
			others[1].ClientAddr)...)
		if err := Run(l.ctx, "cluster", cmd, path); err != nil {
			text, _ := os.ReadFile(path)
			t.Fatalf("cluster %v: %v\n%s", args, err, text)
		}
	}
	cluster("remove", "3")
	for _, name := range []string{"raft.db", "raft.wal", "snapshots"} {
		if err := os.Rename(filepath.Join(data, name), filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	cluster("add", ownLine(t, m))
	if err := m.AwaitServing(l.ctx); err != nil {
		t.Fatal(err)
	}
	l.writes(s, 100)
	// It counts: without one of the others, it makes the majority. It has no vote before it has
	// caught up.
	l.awaitSynced(2, 0)
	if err := others[0].Kill(); err != nil {
		t.Fatal(err)
	}
	l.writes(s, 100)
	s.end(l)
	there := openClient(t, l.sessionTimeout, m.ClientAddr)
	if _, err := there.Sync("/scribe"); err != nil {
		t.Fatal(err)
	}
	if children, _, err := there.Children("/scribe"); err != nil || len(children) < s.count() {
		t.Errorf("the member that was rebuilt has %d nodes of %d (%v)", len(children), s.count(), err)
	}
}

// awaitSynced waits until the leader says that n followers and observers have caught up.
func (l *lab) awaitSynced(followers, observers int) {
	l.t.Helper()
	counts := []string{
		fmt.Sprintf("zk_synced_followers\t%d\n", followers),
		fmt.Sprintf("zk_synced_observers\t%d\n", observers),
	}
	if err := Poll(l.ctx, 10*time.Millisecond, func() error {
		leader, err := l.cluster.AwaitLeader(l.ctx)
		if err != nil {
			return err
		}
		text, err := FourLetter(l.ctx, leader.ClientAddr, "mntr")
		for _, count := range counts {
			if err == nil && !strings.Contains(text, count) {
				err = fmt.Errorf("%s: no %q in\n%s", leader, count, text)
			}
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
}

// ownLine is the member's own line of its configuration.
func ownLine(t *testing.T, m *Member) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "zoo.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "server.3=") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no line for %s in its configuration", m)
	return ""
}

func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
