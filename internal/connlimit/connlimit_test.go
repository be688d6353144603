package connlimit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestTable(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	table := New[int](3, 2)
	table.Add(1, a)
	table.Add(2, a)
	if !table.HostFull(a) || table.HostFull(b) || table.Full() {
		t.Error("two of one host, of three in all")
	}
	table.Add(3, b)
	if !table.Full() || table.Len() != 3 || table.LenSpare() != 3 {
		t.Error("three are all")
	}
	oldest := func(want int, wantOf int) {
		t.Helper()
		c, ok := table.Oldest()
		of, okOf := table.OldestOf(b)
		if c != want || ok != (want != 0) || of != wantOf || okOf != (wantOf != 0) {
			t.Errorf("the oldest is %d (%t), of a host %d (%t); want %d, %d", c, ok, of, okOf, want, wantOf)
		}
	}
	oldest(1, 3)
	table.Keep(1)
	oldest(2, 3)
	table.Keep(3)
	if table.KeptOf(a) != 1 || table.KeptOf(b) != 1 {
		t.Error("one of each host is kept")
	}
	oldest(2, 0)
	table.Keep(2)
	oldest(0, 0)
	for _, c := range []int{3, 1, 2, 2} { // each gets back its place
		table.Spare(c)
	}
	oldest(1, 3)
	if !table.Remove(1) || table.Remove(1) || table.Has(1) || table.HostFull(a) || table.LenSpare() != 2 {
		t.Error("one is removed, once")
	}
	oldest(2, 3)
	unbounded := New[int](0, 0)
	for c := range 1000 {
		unbounded.Add(c, a)
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
