package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// inbox has the events that the clients of a watch table must have received.
type inbox map[*connection][]string

// fire notes who is told of the events of one command, by the simplest of watch tables.
func (in inbox) fire(w watches, events []znode.Event) {
	for _, e := range events {
		for s := range w.told(e.Type, e.Path) {
			in[s] = append(in[s], fmt.Sprintf("%v %s", e.Type, e.Path))
		}
	}
}

// Many events of one command are shared by the connections that watch, and each connection gets
// those of its own watches, in their order and each once, also while its events are held.
//
// Defends: C3.
func TestEventsOfLargeCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		clients := map[*connection]*client{}
		var sessions []*connection
		for range 5 {
			c := mustConnect(t, m, 10*time.Second)
			clients[&c.s.connection] = c
			sessions = append(sessions, &c.s.connection)
		}
		paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a/b/d", "/a/e/c", "/d"}
		types := []wire.EventType{wire.EventNodeCreated, wire.EventNodeDeleted, wire.EventNodeDataChanged, wire.EventNodeChildrenChanged}
		rng := rand.New(rand.NewPCG(3, 4))
		table, want := watches{}, inbox{}
		for range 400 {
			for range 1 + rng.IntN(12) {
				path, s := paths[rng.IntN(len(paths))], sessions[rng.IntN(len(sessions))]
				if child := rng.IntN(2) == 0; child {
					mode := []watchMode{standard, persistent}[rng.IntN(2)]
					m.watches.add(s, path, 0, mode)
					table.add(entry{true, path, s}, mode)
				} else {
					mode := []watchMode{standard, persistent, recursive}[rng.IntN(3)]
					m.watches.add(s, path, mode, 0)
					table.add(entry{false, path, s}, mode)
				}
			}
			var events []znode.Event
			for range 1 + rng.IntN(40) {
				events = append(events, znode.Event{Type: types[rng.IntN(len(types))], Path: paths[rng.IntN(len(paths))], Zxid: 7})
			}
			holding := sessions[rng.IntN(len(sessions))]
			holding.out.holdEvents()
			want.fire(table, events)
			m.watches.fire(slices.Clone(events))
			clear(events) // the store uses them again
			holding.out.releaseEvents()
			synctest.Wait()
			for s, c := range clients {
				c.expect(want[s]...)
				if n := c.unsent(); n != 0 {
					t.Fatalf("%d bytes are unsent", n)
				}
			}
			clear(want)
			if rng.IntN(4) == 0 {
				s := sessions[rng.IntN(len(sessions))]
				for e := range table {
					if e.s == s {
						m.watches.remove(s, e.path, anyMode, anyMode)
						delete(table, e)
					}
				}
			}
		}
		if held, shared := m.gate.Memory.Held(), m.gate.Memory.Shared(); held != 0 || shared != 0 {
			t.Errorf("%d bytes are still counted, %d of them shared", held, shared)
		}
	})
}

// The events of a large command count once for the memory of the member, however many connections
// have them to send, until the last of these has sent them or has ended.
//
// Defends: C9.
func TestSharedEventsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		const watchers, nodes = 50, 5000
		var sessions []*Session
		for range watchers {
			s := mustConnect(t, m, 10*time.Second).s
			m.watches.add(&s.connection, "/", recursive, 0)
			s.out.lease.confirmed.Store(-int64(time.Hour)) // nothing may be sent
			sessions = append(sessions, s)
		}
		var events []znode.Event
		bytes := 0
		for i := range nodes {
			e := znode.Event{Type: wire.EventNodeDeleted, Path: fmt.Sprintf("/%s%05d", strings.Repeat("n", 90), i), Zxid: 7}
			bytes += len(e.Path)
			events = append(events, e)
		}
		m.watches.fire(events)
		shared := m.gate.Memory.Shared()
		if shared < int64(bytes) || shared > int64(3*bytes) {
			t.Errorf("%d bytes are shared; the paths have %d", shared, bytes)
		}
		if held := m.gate.Memory.Held(); held > shared+watchers*(writeChunkBytes+backlogBytes+partBytes) {
			t.Errorf("%d bytes are held, %d of them shared, by %d connections", held, shared, watchers)
		}
		for i, s := range sessions {
			if unsent, of, _ := s.out.holds(); unsent <= of || of < bytes {
				t.Errorf("a connection holds %d bytes, %d of them shared", unsent, of)
			}
			if m.gate.Memory.Shared() != shared {
				t.Fatalf("%d connections have ended, and %d bytes are shared, not %d", i, m.gate.Memory.Shared(), shared)
			}
			s.Detach()
		}
		if held, shared := m.gate.Memory.Held(), m.gate.Memory.Shared(); held != 0 || shared != 0 {
			t.Errorf("%d bytes are still counted, %d of them shared", held, shared)
		}
	})
}

// One-shot watches that have fired in great numbers are settled by another goroutine. Meanwhile
// connections end, and watch again.
//
// Defends: C9.
func TestManyOneShotWatchesFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		ending := &mustConnect(t, m, 10*time.Second).s.connection
		again := &mustConnect(t, m, 10*time.Second).s.connection
		var table WatchTable // without sweep
		table.init(m.gate, &m.stats)
		var events []znode.Event
		for i := range 2 * removeStep {
			path := fmt.Sprintf("/%d", i)
			table.add(ending, path, standard, 0)
			table.add(again, path, standard, 0)
			events = append(events, znode.Event{Type: wire.EventNodeDeleted, Path: path, Zxid: 7})
		}
		table.fire(events)
		if len(again.watched) == 0 {
			t.Fatal("all is settled at once")
		}
		if got := table.counts(); got.Watches != 0 {
			t.Errorf("left: %+v", got)
		}
		for !table.removeSome(ending, removeStep) {
		}
		table.add(again, "/1999", standard, 0)
		for !table.settleSome(removeStep) {
		}
		if want := (WatchCounts{Connections: 1, Paths: 1, DataWatches: 1, Watches: 1}); table.counts() != want {
			t.Errorf("%+v, not %+v", table.counts(), want)
		}
		if len(again.watched) != 1 || again.watchBytes != watchBytes("/1999") || table.bytes != again.watchBytes || ending.watchBytes != 0 {
			t.Errorf("%d paths are watched, for %d bytes; all together for %d; the other one for %d", len(again.watched),
				again.watchBytes, table.bytes, ending.watchBytes)
		}
	})
}
