package connlimit

import (
	"container/list"
	"iter"
	"maps"
	"net/netip"
)

// Table holds the connections to a port, or the ones in one state. Some are spare: they may be
// closed in favour of a newer one. The port's lock guards it.
type Table[C comparable] struct {
	total, perHost int // no bound when <= 0

	entries map[C]*entry[C]
	hosts   map[netip.Addr]int
	spare   list.List // of *entry[C], in the order in which they came
	came    uint64    // the number of connections so far
}

type entry[C comparable] struct {
	conn   C
	host   netip.Addr
	number uint64        // in the order in which they came
	spare  *list.Element // nil: it is not spare
}

// New returns a Table of at most total connections, and perHost of one host. A bound of 0 or less
// is none.
func New[C comparable](total, perHost int) *Table[C] {
	return &Table[C]{total: total, perHost: perHost, entries: map[C]*entry[C]{}, hosts: map[netip.Addr]int{}}
}

// Full reports whether there are as many connections as there may be.
func (t *Table[C]) Full() bool { return reached(t.total, len(t.entries)) }

// HostFull reports whether a host has as many connections as it may have.
func (t *Table[C]) HostFull(host netip.Addr) bool { return reached(t.perHost, t.hosts[host]) }

func reached(bound, n int) bool { return bound > 0 && n >= bound }

// Add adds a connection of a host, spare, whatever the bounds are.
func (t *Table[C]) Add(c C, host netip.Addr) {
	t.came++
	e := &entry[C]{conn: c, host: host, number: t.came}
	e.spare = t.spare.PushBack(e)
	t.entries[c] = e
	t.hosts[host]++
}

// Remove removes a connection. It reports whether it was there.
func (t *Table[C]) Remove(c C) bool {
	e := t.entries[c]
	if e == nil {
		return false
	}
	t.Keep(c)
	delete(t.entries, c)
	if t.hosts[e.host]--; t.hosts[e.host] == 0 {
		delete(t.hosts, e.host)
	}
	return true
}

// Keep makes a connection that is there not spare.
func (t *Table[C]) Keep(c C) {
	if e := t.entries[c]; e != nil && e.spare != nil {
		t.spare.Remove(e.spare)
		e.spare = nil
	}
}

// Spare makes a connection that is there spare again. It has the place of its arrival.
func (t *Table[C]) Spare(c C) {
	e := t.entries[c]
	if e == nil || e.spare != nil {
		return
	}
	for at := t.spare.Back(); at != nil; at = at.Prev() {
		if at.Value.(*entry[C]).number < e.number {
			e.spare = t.spare.InsertAfter(e, at)
			return
		}
	}
	e.spare = t.spare.PushFront(e)
}

// Oldest returns the spare connection that came first; ok is false if none is spare.
func (t *Table[C]) Oldest() (c C, ok bool) {
	if first := t.spare.Front(); first != nil {
		return first.Value.(*entry[C]).conn, true
	}
	return c, false
}

// OldestOf is Oldest of the connections of a host.
func (t *Table[C]) OldestOf(host netip.Addr) (c C, ok bool) {
	for at := t.spare.Front(); at != nil; at = at.Next() {
		if e := at.Value.(*entry[C]); e.host == host {
			return e.conn, true
		}
	}
	return c, false
}

// Has reports whether a connection is there.
func (t *Table[C]) Has(c C) bool { return t.entries[c] != nil }

// Len is the number of connections.
func (t *Table[C]) Len() int { return len(t.entries) }

// LenSpare is the number of spare ones.
func (t *Table[C]) LenSpare() int { return t.spare.Len() }

// KeptOf is the number of connections of a host that are not spare.
func (t *Table[C]) KeptOf(host netip.Addr) (n int) {
	for _, e := range t.entries {
		if e.host == host && e.spare == nil {
			n++
		}
	}
	return n
}

// All are the connections, in any order.
func (t *Table[C]) All() iter.Seq[C] { return maps.Keys(t.entries) }
