package jepsen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/testcert"
)

// TestSecretIsChangedUnderLoad replaces the certificates and the secret by which members know each
// other, on one member after the other, while a client writes and another holds a lock. No client
// loses its connection.
func TestSecretIsChangedUnderLoad(t *testing.T) {
	target := findTarget(t, *targetFlag)
	if target.Name == "zookeeper" {
		t.Skip("ZooKeeper has no secret of this kind")
	}
	const members = 3
	old, next := strings.Repeat("old ", 10), strings.Repeat("next", 10)
	dir := KeptDir(t, *keepFlag)
	ca := testcert.NewCA(t, "members")
	home := func(i int) string { return filepath.Join(dir, fmt.Sprintf("m%d", i+1)) }
	giveCertificate := func(i int) { ca.Issue(t, testcert.Request{Hosts: []string{"127.0.0.1"}}).Write(t, home(i), "tls") }
	giveSecrets := func(i int, secrets ...string) {
		testcert.Write(t, filepath.Join(home(i), "secret"), []byte(strings.Join(secrets, "\n")))
	}
	for i := range members {
		if err := os.MkdirAll(home(i), 0o755); err != nil {
			t.Fatal(err)
		}
		giveCertificate(i)
		giveSecrets(i, old)
	}
	l := newLabIn(t, dir, 2*time.Minute, ClusterConfig{Target: target, Members: members, Extra: []string{
		"peer.secretFile={dir}/secret", "sslQuorum=true", "tls.cert={dir}/tls.pem", "tls.key={dir}/tls.key", "tls.ca={dir}/tls.ca"}})

	var stop atomic.Bool
	var lost atomic.Int32
	connect := func(m *Member) *zk.Conn {
		conn, events, err := zk.Connect([]string{m.ClientAddr}, 8*time.Second, zk.WithLogger(silentLogger{}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		go func() {
			for e := range events { // ends with Close
				if e.State == zk.StateDisconnected && !stop.Load() {
					lost.Add(1)
				}
			}
		}()
		return conn
	}
	holder := connect(l.cluster.Members()[0])
	lock := zk.NewLock(holder, "/lock", zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, members)
	for i, m := range l.cluster.Members() {
		conn := connect(m)
		go func() {
			for !stop.Load() {
				if _, err := conn.Create(fmt.Sprintf("/n%d-", i), nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
					written <- err
					return
				}
				time.Sleep(5 * time.Millisecond) // load, and no overload
			}
			written <- nil
		}()
	}

	for i := range members {
		giveCertificate(i)
	}
	for step, secrets := range [][]string{{old, next}, {next, old}, {next}} {
		for i, m := range l.cluster.Members() {
			giveSecrets(i, secrets...)
			awaitLog(l, m, "peer.secretFile has changed", step+1)
		}
	}
	for _, m := range l.cluster.Members() {
		awaitLog(l, m, "certificates for other members read again", 1) // the connections are new
		if err := m.AwaitServing(l.ctx); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	for range members {
		if err := <-written; err != nil {
			t.Errorf("a client that writes: %v", err)
		}
	}
	if n := lost.Load(); n != 0 {
		t.Errorf("clients were disconnected %d times", n)
	}
	if err := lock.Unlock(); err != nil {
		t.Errorf("the lock is lost: %v", err)
	}
}

// awaitLog waits until a member's log has a text that often.
func awaitLog(l *lab, m *Member, text string, times int) {
	l.t.Helper()
	if err := Poll(l.ctx, 50*time.Millisecond, func() error {
		log, err := os.ReadFile(m.LogPath())
		if n := strings.Count(string(log), text); err == nil && n < times {
			err = fmt.Errorf("the log of %s says %d times: %s", m, n, text)
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
}
