package jepsen

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var restoreNodes = flag.Int("jepsen.restore", 20_000, "how many nodes, of 1 KB, TestRestoreAndKills restores; a tenth with the race detector")

// snapshotCommand is lockkeeper snapshot, at a member.
func (l *lab) snapshotCommand(m *Member, args ...string) *exec.Cmd {
	binary := l.cluster.Members()[0].Command()[0]
	return exec.Command(binary, append([]string{"snapshot", args[0], "-http", m.HTTPAddr, "-auth-file", filepath.Join(l.dir, "auth")}, args[1:]...)...)
}

// mntr is one value of a member.
func (l *lab) mntr(m *Member, key string) float64 {
	text, err := FourLetter(l.ctx, m.ClientAddr, "mntr")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == key {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				l.t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// fill makes the nodes of the snapshot below /data.
func (l *lab) fill(conn *zk.Conn, nodes int) {
	l.t.Helper()
	acl, data := zk.WorldACL(zk.PermAll), []byte(strings.Repeat("x", 1000))
	if _, err := conn.Create("/data", nil, 0, acl); err != nil {
		l.t.Fatal(err)
	}
	const at = 200
	for from := 0; from < nodes; from += at {
		var ops []any
		for i := from; i < min(from+at, nodes); i++ {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("/data/n%d", i), Data: data, Acl: acl})
		}
		if _, err := conn.Multi(ops...); err != nil {
			l.t.Fatal(err)
		}
	}
}

// restored checks that the state is the snapshot's, or the one before with the marker, on every
// member, and that all of them serve. It reports which.
func (l *lab) restored(marker string) (happened bool) {
	l.t.Helper()
	if _, err := l.cluster.AwaitAgreement(l.ctx); err != nil {
		l.t.Fatal(err)
	}
	for i, m := range l.cluster.Members() {
		var conn *zk.Conn
		if err := Poll(l.ctx, 50*time.Millisecond, func() error {
			c, _, err := zk.Connect([]string{m.ClientAddr}, 10*time.Second, zk.WithLogInfo(false))
			if err == nil {
				if _, err = c.Sync("/"); err != nil {
					c.Close()
					return err
				}
				conn = c
			}
			return err
		}); err != nil {
			l.t.Fatal(err)
		}
		there, _, err := conn.Exists(marker)
		_, data, err2 := conn.Exists("/data")
		path, err3 := conn.Create("/served", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		err4 := conn.Delete(path, -1)
		if err := errors.Join(err, err2, err3, err4); err != nil {
			l.t.Fatalf("%v: %v", m, err)
		}
		if int(data.NumChildren) != *restoreNodes || i > 0 && there == happened {
			l.t.Errorf("%v has %d nodes of %d, the marker: %t", m, data.NumChildren, *restoreNodes, there)
		}
		happened = !there
		conn.Close()
	}
	return happened
}

// TestRestoreAndKills: the leader, a follower, or the member that drives it is killed in the middle
// of a restore. Afterwards the members agree on the state before or on the snapshot's, and serve;
// unless the driving member ended, the restore has happened.
func TestRestoreAndKills(t *testing.T) {
	if Race {
		*restoreNodes /= 10
	}
	l := newLabWith(t, 4*time.Minute, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, Admin: true, TickTime: time.Second,
		Extra: []string{"admin.rateLimiterIntervalInMS=1", "audit.enable=true", "audit.file={dir}/audit.log"}})
	if err := os.WriteFile(filepath.Join(l.dir, "auth"), []byte(AdminAuth+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := l.connect()
	l.fill(conn, *restoreNodes)
	file := filepath.Join(l.dir, "large.snap")
	if out, err := l.snapshotCommand(l.cluster.Members()[0], "save", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	entries := 0. // of the log, for a restore
	for _, victim := range []string{"nobody", "leader", "follower", "driver"} {
		marker := "/before-" + victim
		if err := Poll(l.ctx, 50*time.Millisecond, func() error {
			_, err := conn.Create(marker, nil, 0, zk.WorldACL(zk.PermAll))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		leader, err := l.cluster.AwaitLeader(l.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var followers []*Member
		for _, m := range l.cluster.Members() {
			if m != leader {
				followers = append(followers, m)
			}
		}
		driver := followers[0]
		killed := map[string]*Member{"leader": leader, "follower": followers[1], "driver": driver}[victim]
		began := time.Now()
		from := l.mntr(driver, "zk_raft_applied_index")
		done := make(chan error, 1)
		var out []byte
		cmd := l.snapshotCommand(driver, "restore", "-yes", file)
		go func() {
			var err error
			out, err = cmd.CombinedOutput()
			done <- err
		}()
		if killed != nil {
			for deadline := time.Now().Add(20 * time.Second); l.mntr(driver, "zk_raft_applied_index") < from+entries/2; {
				if !Sleep(l.ctx, time.Millisecond) || time.Now().After(deadline) {
					t.Fatalf("%s: the restore does not go on: of %v entries %v", victim, entries, l.mntr(driver, "zk_raft_applied_index")-from)
				}
			}
			if err := killed.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		err = <-done
		took := time.Since(began)
		if (err == nil) != (victim != "driver") {
			t.Errorf("%s killed: %v\n%s", victim, err, out)
		}
		if killed == nil {
			entries = l.mntr(driver, "zk_raft_applied_index") - from
		}
		longest := map[string]float64{}
		for _, m := range l.cluster.Members() {
			if m != killed {
				longest[m.String()] = 1000 * l.mntr(m, "zk_max_apply_seconds")
			}
		}
		if killed != nil {
			if err := killed.Restart(l.ctx); err != nil {
				t.Fatal(err)
			}
		}
		happened := l.restored(marker)
		if victim != "driver" && !happened {
			t.Errorf("%s killed: the restore has not happened", victim)
		}
		t.Logf("figures: %s killed: a restore of %d nodes took %v, happened: %t; the longest entry took (ms) %v", victim, *restoreNodes,
			took.Round(time.Millisecond), happened, longest)
	}
	for file, want := range map[string]string{"audit.log": "\toperation=restore\t", "log": "the state has been replaced by a snapshot"} {
		found := 0
		for _, m := range l.cluster.Members() {
			found += countLines(t, filepath.Join(m.dir, file), want)
		}
		if found < 3 {
			t.Errorf("%d lines with %q in the files %s", found, want, file)
		}
	}
	if n := countLines(t, filepath.Join(l.cluster.Members()[0].dir, "audit.log"), "\toperation=snapshot\t"); n != 1 {
		t.Errorf("%d lines of the audit log for a snapshot", n)
	}
}

// countLines is the number of lines of a file with a text.
func countLines(t *testing.T, file, text string) (n int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), text) {
			n++
		}
	}
	return n
}
