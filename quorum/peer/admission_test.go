package peer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/simnet"
)

// admissionTest opens connections of hosts in a network, and takes them in.
type admissionTest struct {
	t   *testing.T
	net *simnet.Network
	l   net.Listener
	*admission
}

func (g *admissionTest) open(host string) (*inbound, error) {
	g.t.Helper()
	far, err := g.net.Host(host).Dial(g.t.Context(), "tcp", "10.0.0.1:2888")
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { far.Close() })
	near, err := g.l.Accept()
	if err != nil {
		g.t.Fatal(err)
	}
	in := newInbound(near)
	return in, g.admit(in)
}

// A full port closes what has been silent for the longest, and refuses a new connection if nobody
// is silent.
func TestTheLongestSilentGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Seed: 1})
		l, err := n.Host("10.0.0.1").Listen("tcp", "10.0.0.1:2888")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		g := admissionTest{t: t, net: n, l: l, admission: newAdmission(64)}
		var members []*inbound
		for range g.perMember() {
			m, err := g.open("10.0.0.2")
			if err == nil {
				err = g.name(m, 2)
			}
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, m)
		}
		late, err := g.open("10.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.name(late, 2); !errors.Is(err, errTooManyConns) {
			t.Errorf("one more connection of a member that is heard on all: %v", err)
		}
		time.Sleep(2 * minSilence)
		for _, m := range members[1:] {
			m.hear()
		}
		if err := g.name(late, 2); err != nil {
			t.Errorf("one more connection, while one is silent: %v", err)
		}
		if _, err := members[0].Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the silent one: %v", err)
		}
		for range 100 {
			if _, err := g.open("10.0.0.3"); err != nil {
				t.Errorf("a connection that has not said who it is: %v", err)
			}
		}
		if n := g.count(); n > g.perMember()+g.unnamed()/2 {
			t.Errorf("%d connections are open", n)
		}
		for _, m := range members[1:] {
			_ = m.SetReadDeadline(time.Now())
			if _, err := m.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection of a member: %v", err)
			}
		}
	})
}

// A number that is in no roster is only listened to by a member that follows nobody.
func TestUnknownMembersAreNotHeardBesideALeader(t *testing.T) {
	members := []Member{{ID: 1}, {ID: 2, Addr: "10.0.0.2:2888"}}
	local := &fakeLocal{leader: 2, servers: []Server{{1, 1, true}, {2, 2, true}}}
	p := &Port{cfg: Config{ID: 1, Disk: 1, Members: members}, local: local, roster: NewRoster(members, false, local), origins: newOrigins(nil)}
	p.roster.SetCluster(pairCluster)
	of := func(kind StreamKind) preface {
		return preface{kind: kind, from: 77, fromDisk: 77, to: 1, toDisk: 1, cluster: pairCluster}
	}
	ip := netip.MustParseAddr("10.0.0.99")
	if why := p.notMember(of(StreamRaft), ip); why == "" {
		t.Error("an unknown member is heard beside the leader")
	}
	local.leader = 0
	if why := p.notMember(of(StreamRaft), ip); why != "" {
		t.Errorf("without a leader: %s", why)
	}
	if why := p.notMember(of(StreamForward), ip); why == "" {
		t.Error("an unknown member forwards commands")
	}
}

// Addresses of members may be names, several for a host, or say nothing.
func TestOrigins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		names := map[string][]netip.Addr{"two": {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, "debian": {netip.MustParseAddr("127.0.1.1")}}
		o := newOrigins(func(_ context.Context, host string) ([]netip.Addr, error) {
			asked++
			if names[host] == nil {
				return nil, &net.DNSError{Name: host, IsNotFound: true}
			}
			return names[host], nil
		})
		for _, tt := range []struct {
			ip    string
			addrs []string
			want  bool
		}{
			{"10.0.0.1", []string{"10.0.0.1:2888"}, true},
			{"10.0.0.2", []string{"10.0.0.1:2888"}, false},
			{"10.0.0.2", []string{"10.0.0.1:2888", "10.0.0.2:2888"}, true},
			{"::ffff:10.0.0.1", []string{"10.0.0.1:2888"}, true},
			{"fd00::1", []string{"two:2888"}, true},
			{"10.0.0.1", []string{"two:2888"}, true},
			{"10.0.0.9", []string{"two:2888"}, false},
			{"127.0.0.1", []string{"debian:2888"}, true},
			{"127.0.0.1", []string{"10.0.0.1:2888"}, false},
			{"10.0.0.9", []string{"0.0.0.0:2888"}, true},
			{"10.0.0.9", []string{":2888"}, true},
			{"10.0.0.9", []string{"[::]:2888", "10.0.0.1:2888"}, false},
			{"10.0.0.9", nil, true},
			{"10.0.0.1", []string{"nowhere:2888"}, false},
		} {
			if got := o.fits(t.Context(), netip.MustParseAddr(tt.ip).Unmap(), tt.addrs); got != tt.want {
				t.Errorf("%s for a member at %v: %v", tt.ip, tt.addrs, got)
			}
		}
		if asked != 3 {
			t.Errorf("the resolver was asked %d times for three names", asked)
		}
		names["two"] = []netip.Addr{netip.MustParseAddr("10.0.0.9")} // it has moved
		time.Sleep(lookupPause)
		if !o.fits(t.Context(), netip.MustParseAddr("10.0.0.9"), []string{"two:2888"}) {
			t.Error("a member that has moved does not fit")
		}
	})
}
