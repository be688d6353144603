package console

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"lockkeeper/wire"
)

// TestReplayEndsWithItsClient: a history is not replayed for a client that has left.
func TestReplayEndsWithItsClient(t *testing.T) {
	p := newTape(t, 8<<20)
	p.open(1)
	p.create(1, "/l", "", wire.ModePersistent)
	var nodes []string
	for range 300 {
		nodes = append(nodes, p.create(1, "/l/_c_x-lease-", "", wire.ModeEphemeralSequential))
	}
	for _, node := range nodes {
		p.request(1, wire.OpDelete, wire.DeleteRequest{Path: node, Version: -1})
	}
	c := newConsole(p, 1, 8<<20)
	defer c.Close()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := url.Values{"path": {"/l"}}
	c.replays <- struct{}{} // another client's
	if _, err := c.history(q, &viewer{ctx: ctx, super: true}, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits for another replay: %v", err)
	}
	<-c.replays
	r := &replay{path: "/l", viewer: &viewer{ctx: ctx, super: true}, viewing: p.view}
	c.index.with(func() { r.start(c.index) })
	for range 12 {
		r.events = append(r.events, r.events...) // hours of work
		if len(r.events) > 1_000_000 {
			break
		}
	}
	if err := r.run(); !errors.Is(err, context.Canceled) {
		t.Errorf("it is replayed: %v", err)
	}
}

// TestSlowStreamDelaysNoOther: while a history is being made, other streams have their answers.
func TestSlowStreamDelaysNoOther(t *testing.T) {
	p := newTape(t, 1<<20)
	p.open(1)
	p.create(1, "/l", "", wire.ModePersistent)
	p.create(1, "/l/x-lock-", "", wire.ModeEphemeralSequential)
	c := newConsole(p, 2, 1<<20)
	defer c.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	watch := func(view string) *watcher {
		w := &watcher{key: view, view: view, query: url.Values{"path": {"/l"}}, viewer: &viewer{ctx: ctx, super: true},
			latest: make(chan message, 1), beats: make(chan []byte, 1)}
		if !c.hub.join(w) {
			t.Fatal("it may not watch")
		}
		return w
	}
	c.replays <- struct{}{} // as if one took for ever
	history, lock := watch("history"), watch("lock")
	for range 2 {
		select {
		case <-lock.beats:
		case <-time.After(10 * time.Second):
			t.Fatal("no beat beside a slow history")
		}
	}
	select {
	case <-lock.latest:
	case <-time.After(10 * time.Second):
		t.Fatal("no answer beside a slow history")
	}
	<-c.replays
	select {
	case <-history.latest:
	case <-time.After(10 * time.Second):
		t.Fatal("no history")
	}
}
