package main

import (
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// passedBy is a contender that has come and gone, or has stopped waiting, without having been shown
// as a holder: between two reads, in which it may have held the lock.
type passedBy struct {
	Path string       `json:"path"` // of the node's parent
	Node string       `json:"node"`
	Kind recipes.Kind `json:"kind"`
}

// mostChanges is how many nodes treeChanges keeps. Of further ones it keeps only the number.
const mostChanges = 100_000

// treeChanges gathers what a recipes.TreeWatch reports of contenders, for locks -watch.
type treeChanges struct {
	changed chan struct{} // has an element when there is something new

	mu      sync.Mutex
	polling bool            // the server has no such watches
	holds   map[string]bool // nodes that are there and have been shown as holders
	passed  []string        // nodes that are gone and have not been
	missed  int             // beyond mostChanges
}

func newTreeChanges() *treeChanges {
	return &treeChanges{changed: make(chan struct{}, 1), holds: map[string]bool{}}
}

// notify is the TreeWatch's Notify.
func (t *treeChanges) notify(e zk.Event) {
	dir, name := splitPath(e.Path)
	kind, _ := recipes.NodeKind(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Type == zk.EventNotWatching:
		t.polling = true
	case e.Type == zk.EventSession:
		if e.State != zk.StateHasSession {
			return
		}
	case kind == recipes.KindUnknown || dir == "": // nodes of queues and others have numbers, too
		return
	case e.Type == zk.EventNodeDeleted:
		switch {
		case t.holds[e.Path]:
		case len(t.passed) < mostChanges:
			t.passed = append(t.passed, e.Path)
		default:
			t.missed++
		}
		delete(t.holds, e.Path)
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// shown records a read of all locks, and returns the contenders that have passed by since the
// previous one, and how many more there were.
//
// Order: the events come over the connection that was read from, and a member sends an event before
// it sends what shows the change. So a node that the read does not find is gone, though its
// deletion may have been lost with an earlier connection.
func (t *treeChanges) shown(list lockList) (passed []passedBy, missed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := make(map[string]bool, len(t.passed))
	for _, p := range t.passed {
		gone[p] = true
	}
	clear(t.holds)
	for _, l := range list {
		for _, c := range l.Contenders {
			node := c.Path + "/" + c.Node
			switch {
			case !c.Held && !c.MayHold:
			case gone[node]: // it was read before it went
				delete(gone, node)
			case len(t.holds) < mostChanges:
				t.holds[node] = true
			}
		}
	}
	for _, p := range t.passed {
		if gone[p] {
			dir, name := splitPath(p)
			kind, _ := recipes.NodeKind(name)
			passed = append(passed, passedBy{Path: dir, Node: name, Kind: kind})
		}
	}
	missed = t.missed
	t.passed, t.missed = nil, 0
	return passed, missed
}

// isPolling reports that the server has no persistent watches.
func (t *treeChanges) isPolling() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.polling
}

func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}
