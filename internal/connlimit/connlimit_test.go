package connlimit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// testConn is a connection of a Table.
type testConn struct {
	number int
	place  Place[*testConn]
}

func (c *testConn) TablePlace() *Place[*testConn] { return &c.place }

func TestTable(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	table := New[*testConn](3, 2)
	one, two, three := &testConn{number: 1}, &testConn{number: 2}, &testConn{number: 3}
	table.Add(one, a)
	table.Add(two, a)
	if !table.HostFull(a) || table.HostFull(b) || table.Full() {
		t.Error("two of one host, of three in all")
	}
	table.Add(three, b)
	if !table.Full() || table.Len() != 3 || table.LenSpare() != 3 {
		t.Error("three are all")
	}
	oldest := func(want, wantOf *testConn) {
		t.Helper()
		c, ok := table.Oldest()
		of, okOf := table.OldestOf(b)
		if c != want || ok != (want != nil) || of != wantOf || okOf != (wantOf != nil) {
			t.Errorf("the oldest is %v (%t), of a host %v (%t); want %v, %v", c, ok, of, okOf, want, wantOf)
		}
		all := map[*testConn]bool{}
		for c := range table.All() {
			all[c] = true
		}
		if len(all) != table.Len() {
			t.Errorf("%d of %d connections are listed", len(all), table.Len())
		}
	}
	oldest(one, three)
	table.Keep(one)
	oldest(two, three)
	table.Keep(three)
	if table.KeptOf(a) != 1 || table.KeptOf(b) != 1 {
		t.Error("one of each host is kept")
	}
	oldest(two, nil)
	table.Keep(two)
	oldest(nil, nil)
	for _, c := range []*testConn{three, one, two, two} { // each gets back its place
		table.Spare(c)
	}
	oldest(one, three)
	if !table.Remove(one) || table.Remove(one) || table.Has(one) || table.HostFull(a) || table.LenSpare() != 2 {
		t.Error("one is removed, once")
	}
	oldest(two, three)
	table.Keep(two)
	for c := range table.All() { // in the middle of the list, and the last one
		table.Remove(c)
	}
	oldest(nil, nil)
	table.Add(one, a)
	oldest(one, nil)
	unbounded := New[*testConn](0, 0)
	for range 1000 {
		unbounded.Add(new(testConn), a)
	}
	if unbounded.Full() || unbounded.HostFull(a) {
		t.Error("there is no bound")
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			if !NewRate(0, 1, time.Second).Allow() {
				t.Fatal("limited without a limit")
			}
		}
		r := NewRate(3, 2, time.Second)
		allowed := func() (n int) {
			for range 10 {
				if r.Allow() {
					n++
				}
			}
			return n
		}
		for i, want := range []int{3, 2, 2, 3} {
			if n := allowed(); n != want {
				t.Errorf("interval %d: %d, want %d", i, n, want)
			}
			time.Sleep(time.Second << (i / 2 * 3))
		}
	})
}

func TestNetworkOf(t *testing.T) {
	for addr, want := range map[string]string{"10.1.2.3": "10.1.2.3/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64"} {
		if got := NetworkOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if NetworkOf(netip.Addr{}).IsValid() {
		t.Error("an unknown address has a network")
	}
}
