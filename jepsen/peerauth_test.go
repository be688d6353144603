package jepsen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/testcert"
)

// TestSecretIsChangedUnderLoad replaces the certificates and the secret by which members know each
// other, on one member after the other, while clients write, another holds a lock, and strangers
// connect to the peer ports. No client loses its connection.
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

	endStrangers := startStrangers(l)
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
	// An election among strangers: the leader goes, and comes back.
	leader, err := l.cluster.AwaitLeader(l.ctx)
	if err == nil {
		err = errors.Join(leader.Stop(l.ctx), leader.Restart(l.ctx))
	}
	if err == nil {
		err = l.cluster.AwaitServing(l.ctx)
	}
	if err != nil {
		t.Errorf("among strangers: %v", err)
	}
	endStrangers()
}

// startStrangers has strangers connect to the peer ports all the time: some say nothing, some say
// that they are a member, with a proof that is none, or with the beginning of TLS. They end with
// the function that is returned; none may have been told anything.
func startStrangers(l *lab) (end func()) {
	var stop atomic.Bool
	var work sync.WaitGroup
	var opened atomic.Int32
	for i, m := range l.cluster.Members() {
		says := [][]byte{
			nil,
			append([]byte("LKPR\x01R"), byte((i+1)%3+1), byte(i+1), 0, 0, 0, 1),
			append(append([]byte("LKPS\x01F"), byte((i+1)%3+1), byte(i+1), 0, 0, 0, 1), make([]byte, 64)...),
			append([]byte{0x16, 3, 1, 0x40, 0}, make([]byte, 100)...),
		}
		work.Go(func() {
			var held []net.Conn
			for n := 0; !stop.Load(); n++ {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+n%20))}, Timeout: time.Second}
				c, err := dialer.Dial("tcp", m.PeerAddr)
				time.Sleep(2 * time.Millisecond) // a flood, and not all of the machine
				if err != nil {
					continue // the member is being started
				}
				opened.Add(1)
				_, _ = c.Write(says[n%len(says)])
				held = append(held, c)
				if len(held) < 200 {
					continue
				}
				_ = held[0].SetReadDeadline(time.Now().Add(time.Millisecond))
				// An alert of TLS is all that it may be sent.
				if told, _ := io.ReadAll(held[0]); len(told) > 0 && told[0] != 0x15 {
					l.t.Errorf("a stranger was told %x", told)
				}
				_ = held[0].Close()
				held = held[1:]
			}
			for _, c := range held {
				_ = c.Close()
			}
		})
	}
	end = sync.OnceFunc(func() {
		stop.Store(true)
		work.Wait()
		l.t.Logf("figures: strangers opened %d connections", opened.Load())
	})
	l.t.Cleanup(end)
	return end
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
