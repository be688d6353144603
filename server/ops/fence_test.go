package ops

import (
	"context"
	"testing"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A lock with thousands of contenders is judged in steps, between which others get the state; the
// answer is true of the last.
func TestFenceInSteps(t *testing.T) {
	const contenders = 3*fenceStep + 1
	store, seq := znode.New(), uint64(0)
	apply := func(c znode.Command) {
		store.Apply(1, &znode.Entry{Commands: []znode.Command{c}}, func(_ *znode.Command, r *znode.Result) {
			if r.Status != znode.Done || r.Code != wire.CodeOK {
				t.Fatalf("%+v", r)
			}
		})
	}
	request := func(op wire.Op, body wire.Record) {
		seq++
		apply(znode.Command{Session: 1, Generation: 1, Seq: seq, Body: &znode.Request{Op: op, Body: body.Append(nil)}})
	}
	apply(znode.Command{Session: 1, Body: &znode.CreateSession{Connection: znode.Connection{}}})
	request(wire.OpCreate, &wire.CreateRequest{Path: "/m", ACL: wire.OpenACL})
	for range contenders {
		request(wire.OpCreate, &wire.CreateRequest{Path: "/m/lock-", ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential})
	}
	first, _ := store.Node("/m/lock-0000000000")
	turns := make(chan struct{}, 1)
	for _, leaves := range []bool{false, true} {
		steps := 0
		a := FenceAnswer{Lock: "/m", Token: int64(first.Czxid)}
		err := a.judge(t.Context(), func(f func(*znode.Store)) {
			steps++
			if leaves && steps == 12 { // the last
				request(wire.OpDelete, &wire.DeleteRequest{Path: "/m/lock-0000000000", Version: -1})
			}
			f(store)
		}, turns, nil)
		if err != nil || a.Valid == leaves || a.Newest != a.Token || (a.Reason == noSuchNode) != leaves || (a.Node == "") != leaves {
			t.Errorf("its holder leaves: %v: %+v, %v", leaves, a, err)
		}
		// begin, listings, list, look, close, confirm
		if want := 1 + 1 + 4 + 4 + 1 + 1; steps != want {
			t.Errorf("%d steps, want %d", steps, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := FenceAnswer{Lock: "/m", Token: int64(first.Czxid)}
	if err := a.judge(ctx, func(f func(*znode.Store)) { f(store) }, turns, nil); err == nil {
		t.Errorf("the client has gone, and the answer is %+v", a)
	}
	turns <- struct{}{} // another fence looks at many contenders
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	a = FenceAnswer{Lock: "/m", Token: int64(first.Czxid)}
	if err := a.judge(ctx, func(f func(*znode.Store)) { f(store) }, turns, nil); err == nil {
		t.Errorf("it is not its turn, and the answer is %+v", a)
	}
	request(wire.OpCreate, &wire.CreateRequest{Path: "/few", ACL: wire.OpenACL})
	request(wire.OpCreate, &wire.CreateRequest{Path: "/few/lock-", ACL: wire.OpenACL, Mode: wire.ModeEphemeralSequential})
	few, _ := store.Node("/few/lock-0000000000")
	a = FenceAnswer{Lock: "/few", Token: int64(few.Czxid)}
	if err := a.judge(t.Context(), func(f func(*znode.Store)) { f(store) }, turns, nil); err != nil || !a.Valid {
		t.Errorf("an ordinary lock waits for its turn: %+v, %v", a, err)
	}
}
