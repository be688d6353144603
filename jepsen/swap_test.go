package jepsen

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// A connection to one of two exchanged hosts reaches the other one, until they are exchanged again;
// open connections break.
func TestExchange(t *testing.T) {
	p := NewProxies(3, 1)
	defer closeAll(t, p)
	addrs := make(map[int]string)
	for host := 1; host <= 3; host++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte{byte(host)})
			}
		}()
		addrs[host] = l.Addr().String()
	}
	from3to1, err := p.Between(3, 1, addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Between(3, 2, addrs[2]); err != nil {
		t.Fatal(err)
	}
	from2to1, err := p.Between(2, 1, addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	reach := func(addr string, want byte) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		got := make([]byte, 1)
		if _, err := io.ReadFull(conn, got); err != nil || got[0] != want {
			t.Errorf("it is host %d (%v), want %d", got[0], err, want)
		}
		return conn
	}
	open := reach(from3to1, 1)
	if err := p.Exchange(1, 2); err != nil {
		t.Fatal(err)
	}
	if n, err := open.Read(make([]byte, 1)); err == nil {
		t.Errorf("an open connection goes on: %d bytes", n)
	}
	reach(from3to1, 2)
	reach(from2to1, 2)
	if err := p.Exchange(2, 3); err == nil {
		t.Error("a host has two addresses")
	}
	if err := p.Exchange(2, 1); err != nil {
		t.Fatal(err)
	}
	reach(from3to1, 1)
}

// The address of a member of one cluster is given to the member with the same number of another
// one. Neither cluster takes it for its own, and both go on.
func TestClustersDoNotMix(t *testing.T) {
	links := NewProxies(3, 1)
	defer closeAll(t, links)
	target := findTarget(t, "lockkeeper")
	x := newLabWith(t, 2*time.Minute, ClusterConfig{Target: target, Members: 3, Between: links.Between})
	y := newLabWith(t, 2*time.Minute, ClusterConfig{Target: target, Members: 3})
	create := func(l *lab, path string) {
		t.Helper()
		if _, err := openClient(t, l.sessionTimeout, strings.Split(l.cluster.Servers(), ",")...).Create(path, nil, 0,
			zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	create(x, "/x")
	create(y, "/y")
	ofX, ofY := x.cluster.Members(), y.cluster.Members()
	if err := ofX[2].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := links.move(3, ofY[2].PeerAddr); err != nil {
		t.Fatal(err)
	}
	// Members of X look for their third, and are told that it is not theirs.
	logged := func() error {
		for _, m := range slices.Concat(ofX[:2], ofY[2:]) {
			if strings.Contains(m.LogTail(), "this is member 3 of cluster") {
				return nil
			}
		}
		return errors.New("nobody says that there are two clusters")
	}
	if err := Poll(x.ctx, 50*time.Millisecond, logged); err != nil {
		t.Fatal(err)
	}
	create(x, "/x2")
	create(y, "/y2")
	if err := links.move(3, ofX[2].PeerAddr); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Member{ofX[2], ofY[2]} {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := m.Restart(x.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		l    *lab
		want string
	}{{x, "x x2"}, {y, "y y2"}} {
		if _, err := test.l.cluster.AwaitAgreement(test.l.ctx); err != nil {
			t.Error(err)
		}
		for _, m := range test.l.cluster.Members() {
			conn := openClient(t, test.l.sessionTimeout, m.ClientAddr)
			if _, err := conn.Sync("/"); err != nil {
				t.Fatal(err)
			}
			names, _, err := conn.Children("/")
			names = slices.DeleteFunc(names, func(name string) bool { return name == "zookeeper" })
			slices.Sort(names)
			if got := strings.Join(names, " "); err != nil || got != test.want {
				t.Errorf("%s of %s has %q (%v)", m, test.want, got, err)
			}
		}
	}
}
