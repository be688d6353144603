package session

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// entry is where a watch is, in the simplest of watch tables.
type entry struct {
	child bool
	path  string
	s     *Session
}

// watches is that table.
type watches map[entry]watchMode

func (w watches) add(e entry, mode watchMode) { w[e] |= mode }

func (w watches) drop(e entry, modes watchMode) {
	if w[e] &^= modes; w[e] == 0 {
		delete(w, e)
	}
}

// fire removes what an event uses up, and returns how many connections are told.
func (w watches) fire(t wire.EventType, path string) int {
	told := map[*Session]bool{}
	for e, mode := range w {
		above := strings.HasPrefix(path, strings.TrimSuffix(e.path, "/")+"/")
		switch {
		case e.path == path && (t == wire.EventNodeDeleted || e.child == (t == wire.EventNodeChildrenChanged)):
			told[e.s] = true
			defer w.drop(e, standard)
		case above && !e.child && mode&recursive != 0 && t != wire.EventNodeChildrenChanged:
			told[e.s] = true
		}
	}
	return len(told)
}

func (w watches) counts() WatchCounts {
	c := WatchCounts{Watches: len(w)}
	sessions, paths := map[*Session]bool{}, map[string]bool{}
	for e := range w {
		if sessions[e.s] = true; !e.child {
			paths[e.path] = true
			c.DataWatches++
		}
	}
	c.Connections, c.Paths = len(sessions), len(paths)
	return c
}

// TestWatchTable holds the table of watches against the simplest one, with whatever is added,
// removed and fired.
func TestWatchTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		var sessions []*Session
		for range 4 {
			sessions = append(sessions, mustConnect(t, m, 10*time.Second).s)
		}
		paths := []string{"/", "/a", "/a/b", "/a/b/c", "/d"}
		events := []wire.EventType{wire.EventNodeCreated, wire.EventNodeDeleted, wire.EventNodeDataChanged, wire.EventNodeChildrenChanged}
		rng := rand.New(rand.NewPCG(1, 2))
		want := watches{}
		for step := range 20_000 {
			path, s := paths[rng.IntN(len(paths))], sessions[rng.IntN(len(sessions))]
			data, child := entry{false, path, s}, entry{true, path, s}
			switch rng.IntN(8) {
			case 0, 1:
				mode := []watchMode{standard, standard, persistent, recursive}[rng.IntN(4)]
				m.watches.add(s, path, mode, 0)
				want.add(data, mode)
			case 2, 3:
				mode := []watchMode{standard, standard, persistent}[rng.IntN(3)]
				m.watches.add(s, path, 0, mode)
				want.add(child, mode)
			case 4:
				inData, inChild := watchMode(rng.IntN(8)), watchMode(rng.IntN(4))
				expected := want[data]&inData|want[child]&inChild != 0
				if got := m.watches.remove(s, path, inData, inChild); got != expected {
					t.Fatalf("step %d: remove %s: %v", step, path, got)
				}
				want.drop(data, inData)
				want.drop(child, inChild)
			default:
				event := events[rng.IntN(len(events))]
				before := m.stats.PacketsSent
				m.watches.fire(&znode.Event{Type: event, Path: path})
				if told, expected := int(m.stats.PacketsSent-before), want.fire(event, path); told != expected {
					t.Fatalf("step %d: %v of %s: %d were told, not %d", step, event, path, told, expected)
				}
			}
			if got := m.watches.counts(); got != want.counts() {
				t.Fatalf("step %d: %+v, not %+v", step, got, want.counts())
			}
			for _, s := range sessions {
				for _, path := range paths {
					_, watched := s.watched[path]
					if expected := want[entry{false, path, s}]|want[entry{true, path, s}] != 0; watched != expected {
						t.Fatalf("step %d: %s is watched: %v, the connection says %v", step, path, expected, watched)
					}
				}
			}
		}
		for _, s := range sessions {
			m.watches.removeSome(s, 100)
		}
		if got := m.watches.counts(); got != (WatchCounts{}) || m.watches.recursive != 0 {
			t.Fatalf("left in the end: %+v, %d recursive", got, m.watches.recursive)
		}
	})
}
