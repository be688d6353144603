package jepsen

import (
	"reflect"
	"testing"
	"time"
)

func TestCheckKills(t *testing.T) {
	at := func(seconds int, op Op) Op {
		op.Time = time.Duration(seconds) * time.Second
		return op
	}
	acquire := func(kind Kind, who string) Op {
		return Op{Kind: kind, F: FAcquire, Worker: who, Contender: who + "/l", Lock: "/l"}
	}
	connected := func(who, member string) Op { return Op{Kind: Info, F: FConnected, Worker: who, Member: member} }
	suspended := func(who string) Op { return Op{Kind: Info, F: FSuspended, Worker: who} }
	kill := Op{Kind: Info, F: FKill, Member: "m1"}

	got := CheckKills([]Op{
		at(0, connected("a", "m1")),
		at(0, connected("b", "m2")),
		at(1, acquire(Invoke, "a")),
		at(1, acquire(Invoke, "b")),
		at(2, acquire(OK, "a")),
		at(3, kill),
		at(4, suspended("a")), // it was connected to m1: no wonder
		at(4, suspended("b")), // it was not
		at(5, connected("a", "m2")),
		at(6, acquire(OK, "b")),
		at(7, acquire(Invoke, "a")),
		at(7, acquire(Invoke, "b")),
		at(8, connected("b", "m1")), // restarted
		at(9, suspended("b")),       // and not killed since
		at(10, kill),
		at(12, acquire(Fail, "b")), // a timeout: it waits on, but never gets it
		at(13, acquire(Invoke, "b")),
		at(14, acquire(OK, "a")),
		at(15, Op{Kind: Info, F: FExpired, Worker: "b"}),
	})
	want := &KillReport{
		Kills:      2,
		Bystanders: 2, // b at the first, a at the second
		Dropped: []string{
			"4.000s: b lost its connection to m2, which was not killed",
			"9.000s: b lost its connection to m1, which was not killed",
		},
		Expired: []string{"15.000s: b"},
		Handoffs: []Handoff{
			{Kill: 1, Lock: "/l", Who: "b/l", Took: 3 * time.Second},
			{Kill: 2, Lock: "/l", Who: "a/l", Took: 4 * time.Second},
		},
		Waits: []Handoff{
			{Kill: 1, Lock: "/l", Who: "b/l", Took: 3 * time.Second},
			{Kill: 2, Lock: "/l", Who: "a/l", Took: 4 * time.Second},
			{Kill: 2, Lock: "/l", Who: "b/l", Took: never},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if slowest, ok := Slowest(got.Waits); !ok || slowest.Who != "b/l" {
		t.Errorf("Slowest = %v, %v", slowest, ok)
	}
	if slowest, ok := Slowest(got.Handoffs); !ok || slowest.Took != 4*time.Second {
		t.Errorf("Slowest = %v, %v", slowest, ok)
	}
}
