package trace

import (
	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

// node is an entry with those before it. By the Log Matching Property (Raft, section 5.3) its place
// determines all of them.
type node struct {
	Entry
	parent *node // nil: it is the first
	run    *node // the first of its term among those before it, itself included
	config *node // the newest that names the voters, itself included; nil: none does
}

// world is a cluster: what began with one first entry.
type world struct {
	// root is the first entry, or the place in front of it where imported data end.
	root  *node
	nodes map[Place]*node
	terms map[uint64]*term
	// committed is the newest entry that is known to be committed; nil: none is.
	committed *node
	newest    *node // that names the voters, committed or not
	// unexplained are commits that need voters which no event has shown yet.
	unexplained []claim

	sessions  sessions
	execution execution
	commits   committing
	serves    bool // a client's command has taken effect
}

// term is an election, and the log of who has won it.
type term struct {
	leader raft.ServerID // empty: nobody is known to lead
	begins *node         // the leader's last entry when it stood for election
	tip    *node         // the leader's newest entry of the term; nil: none is known
	stands map[raft.ServerID]*node
	votes  map[raft.ServerID]raft.ServerID
	// holds is the index up to which each disk has acknowledged the leader's log in this term.
	holds map[raft.ServerID]uint64
}

func newWorld() *world {
	return &world{nodes: map[Place]*node{}, terms: map[uint64]*term{},
		sessions:  sessions{all: map[wire.SessionID]*session{}},
		execution: execution{results: map[uint64]uint64{}, nodes: nodes{}}}
}

func (w *world) term(n uint64) *term {
	t := w.terms[n]
	if t == nil {
		t = &term{stands: map[raft.ServerID]*node{}, votes: map[raft.ServerID]raft.ServerID{},
			holds: map[raft.ServerID]uint64{}}
		w.terms[n] = t
	}
	return t
}

// add puts an entry behind parent.
func (w *world) add(parent *node, e Entry) *node {
	n := &node{Entry: e, parent: parent}
	n.run, n.config = n, n
	if parent != nil && parent.Term == e.Term {
		n.run = parent.run
	}
	if e.Voters == nil {
		if n.config = nil; parent != nil {
			n.config = parent.config
		}
	}
	w.nodes[e.Place] = n
	return n
}

// at is the entry of n's log at an index; nil: n's log is shorter, or begins later.
func (w *world) at(n *node, index uint64) *node {
	if n == nil || index > n.Index {
		return nil
	}
	for n != nil && n.run.Index > index {
		n = n.run.parent
	}
	if n == nil {
		return nil
	}
	return w.nodes[Place{index, n.Term}]
}

// of is the newest entry of a term in n's log; nil: there is none.
func (n *node) of(term uint64) *node {
	for n != nil && n.Term > term {
		n = n.run.parent
	}
	if n == nil || n.Term < term {
		return nil
	}
	return n
}

// has reports whether n's log has the entry e. Every log has the entry nil.
func (w *world) has(n, e *node) bool { return e == nil || w.at(n, e.Index) == e }

// newer returns the one of two entries that an election prefers (Raft, section 5.4.1).
func newer(a, b *node) *node {
	if placeOf(b).upToDate(placeOf(a)) {
		return a
	}
	return b
}

func placeOf(n *node) Place {
	if n == nil {
		return Place{}
	}
	return n.Place
}
