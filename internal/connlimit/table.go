package connlimit

import (
	"iter"
	"net/netip"
)

// Table holds the connections to a port, or the ones in one state. Some are spare: they may be
// closed in favour of a newer one. The port's lock guards it.
//
// A connection has its place in the table within itself: a port has tens of thousands of them, and
// a map of entries takes three times the memory. So it is in one Table at a time.
type Table[C Conn[C]] struct {
	total, perHost int // no bound when <= 0

	hosts       map[netip.Addr]int
	kept, spare list[C] // spare is in the order in which they came
	came        uint64  // the number of connections so far
}

// Conn is a connection that can be in a Table: a pointer to one with a Place.
type Conn[C any] interface {
	comparable
	TablePlace() *Place[C]
}

// Place is the place of a connection in a Table. The zero value is in none.
type Place[C any] struct {
	host       netip.Addr
	number     uint64 // in the order in which they came; 0: it is in no table
	prev, next C
	spare      bool
}

// list is a list of connections.
type list[C Conn[C]] struct {
	first, last C
	n           int
}

// New returns a Table of at most total connections, and perHost of one host. A bound of 0 or less
// is none.
func New[C Conn[C]](total, perHost int) *Table[C] {
	return &Table[C]{total: total, perHost: perHost, hosts: map[netip.Addr]int{}}
}

// insert inserts c behind another connection of the list; in front if that is zero.
func (l *list[C]) insert(c, behind C) {
	var none C
	p, next := c.TablePlace(), l.first
	if behind != none {
		next = behind.TablePlace().next
		behind.TablePlace().next = c
	} else {
		l.first = c
	}
	if next != none {
		next.TablePlace().prev = c
	} else {
		l.last = c
	}
	p.prev, p.next = behind, next
	l.n++
}

func (l *list[C]) remove(c C) {
	var none C
	p := c.TablePlace()
	if p.prev != none {
		p.prev.TablePlace().next = p.next
	} else {
		l.first = p.next
	}
	if p.next != none {
		p.next.TablePlace().prev = p.prev
	} else {
		l.last = p.prev
	}
	p.prev, p.next = none, none
	l.n--
}

// all are the connections of the list, in its order. The present one may be removed.
func (l *list[C]) all(yield func(C) bool) {
	var none C
	for c := l.first; c != none; {
		next := c.TablePlace().next
		if !yield(c) {
			return
		}
		c = next
	}
}

// Full reports whether there are as many connections as there may be.
func (t *Table[C]) Full() bool { return reached(t.total, t.Len()) }

// HostFull reports whether a host has as many connections as it may have.
func (t *Table[C]) HostFull(host netip.Addr) bool { return reached(t.perHost, t.hosts[host]) }

func reached(bound, n int) bool { return bound > 0 && n >= bound }

// Add adds a connection of a host, spare, whatever the bounds are.
func (t *Table[C]) Add(c C, host netip.Addr) {
	t.came++
	*c.TablePlace() = Place[C]{host: host, number: t.came, spare: true}
	t.spare.insert(c, t.spare.last)
	t.hosts[host]++
}

// Remove removes a connection. It reports whether it was there.
func (t *Table[C]) Remove(c C) bool {
	if !t.Has(c) {
		return false
	}
	t.Keep(c)
	t.kept.remove(c)
	p := c.TablePlace()
	if t.hosts[p.host]--; t.hosts[p.host] == 0 {
		delete(t.hosts, p.host)
	}
	*p = Place[C]{}
	return true
}

// Keep makes a connection that is there not spare.
func (t *Table[C]) Keep(c C) {
	if p := c.TablePlace(); p.spare {
		t.spare.remove(c)
		t.kept.insert(c, t.kept.last)
		p.spare = false
	}
}

// Spare makes a connection that is there spare again. It has the place of its arrival.
func (t *Table[C]) Spare(c C) {
	p := c.TablePlace()
	if !t.Has(c) || p.spare {
		return
	}
	t.kept.remove(c)
	var none C
	at := t.spare.last
	for at != none && at.TablePlace().number > p.number {
		at = at.TablePlace().prev
	}
	t.spare.insert(c, at)
	p.spare = true
}

// Oldest returns the spare connection that came first; ok is false if none is spare.
func (t *Table[C]) Oldest() (c C, ok bool) { return t.spare.first, t.spare.n > 0 }

// OldestOf is Oldest of the connections of a host.
func (t *Table[C]) OldestOf(host netip.Addr) (c C, ok bool) {
	for c := range t.spare.all {
		if c.TablePlace().host == host {
			return c, true
		}
	}
	return c, false
}

// Has reports whether a connection is there.
func (t *Table[C]) Has(c C) bool { return c.TablePlace().number != 0 }

// Len is the number of connections.
func (t *Table[C]) Len() int { return t.kept.n + t.spare.n }

// LenSpare is the number of spare ones.
func (t *Table[C]) LenSpare() int { return t.spare.n }

// KeptOf is the number of connections of a host that are not spare.
func (t *Table[C]) KeptOf(host netip.Addr) (n int) {
	for c := range t.kept.all {
		if c.TablePlace().host == host {
			n++
		}
	}
	return n
}

// All are the connections, in any order. The present one may be removed.
func (t *Table[C]) All() iter.Seq[C] {
	return func(yield func(C) bool) {
		more := true
		for _, l := range []*list[C]{&t.kept, &t.spare} {
			l.all(func(c C) bool {
				more = more && yield(c)
				return more
			})
		}
	}
}
