package znode

import (
	"bytes"
	"encoding/binary"
	"iter"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"lockkeeper/wire"
)

// nodeKind says how long a node lives. The numbers are part of the snapshot's format.
type nodeKind uint8

const (
	kindPersistent nodeKind = iota + 1 // until it is deleted
	kindEphemeral                      // until its session ends
	kindContainer                      // until the reaper finds that its last child is gone
	kindTTL                            // until it is childless and unchanged for too long
)

// node is the part that every node has, 56 bytes beside the body. It is all that a persistent node
// has that was never changed and never had a child, as most nodes. Others have details and a
// family, too.
type node struct {
	body
	acl     *aclList // nil: the row is not in use
	czxid   wire.Zxid
	ctimeMs int64
	parent  slot // noSlot for the root
	more    slot // the row of the details and of the family; noSlot: plain ones
}

// body is the last component of a node's path, empty in the root, and its data, in one allocation:
//
//	uvarint 2 * length of the name, and one more if the data is null | name | data
//
// It is replaced, never modified.
type body []byte

func newBody(name string, data []byte) body {
	var head [binary.MaxVarintLen64]byte
	length := uint64(2 * len(name))
	if data == nil {
		length++
	}
	start := binary.PutUvarint(head[:], length)
	b := make(body, start+len(name)+len(data))
	copy(b, head[:start])
	copy(b[start:], name)
	copy(b[start+len(name):], data)
	return b
}

// parts returns the name, and the data: null and empty are different.
func (b body) parts() (name, data []byte) {
	length, start := uint64(b[0]), 1
	if length >= 0x80 {
		length, start = binary.Uvarint(b)
	}
	end := start + int(length/2)
	if length%2 == 0 {
		data = b[end:len(b):len(b)]
	}
	return b[start:end], data
}

func (b body) name() []byte {
	name, _ := b.parts()
	return name
}

func (b body) data() []byte {
	_, data := b.parts()
	return data
}

// sharedNameMax is the largest name that stays in memory together with data that are on their way
// to a client. Only the data count as its memory.
const sharedNameMax = 256

// share returns the data for use when the lock is released.
func (b body) share() []byte {
	name, data := b.parts()
	if len(name) > sharedNameMax {
		return bytes.Clone(data)
	}
	return data
}

// details are the part of a node that a snapshot keeps, beside the part that every node has.
type details struct {
	mzxid, pzxid wire.Zxid
	mtimeMs      int64
	// usedMs is when a container or a TTL node was created or written, by the cluster's clock
	// (clock.nowMs); 0 for other nodes.
	usedMs   int64
	owner    int64 // kindEphemeral: the session; kindTTL: the time to live in ms
	version  int32
	creates  int32 // children ever created; gives cversion and the sequence numbers
	aversion int32
	kind     nodeKind
}

// plain are the details of a persistent node as it is created.
func plain(czxid wire.Zxid, ctimeMs int64) details {
	return details{mzxid: czxid, pzxid: czxid, mtimeMs: ctimeMs, kind: kindPersistent}
}

// siblings tie a node to the other children of its parent, and to other nodes in the index. They
// are no part of a snapshot.
//
// Invariant: the children of a node form a ring through next and prev. A ring of one points to
// itself.
type siblings struct {
	next, prev slot
	same       slot // the next node of a path with the same hash; noSlot: none
}

// family is a node to the nodes below it, to its session and to its quota. It is no part of a
// snapshot.
//
// Invariant: below is the number of all nodes below this one. count and bytes are the sums of the
// node and of all nodes below it, without nodes that count for a quota below it, or for no quota
// (underQuota).
type family struct {
	first     slot  // child; noSlot without children
	owned     int32 // an ephemeral node's index in the belongings of its session
	children  int32
	below     int32
	count     int32
	bytes     int64
	nameBytes int64  // of the names of the children
	quota     *quota // the active one on this path; nil: none
}

// tree is the nodes with their ACLs and quotas, and the listings of children. It knows no session
// and no command: the owner of an ephemeral node is a number here.
type tree struct {
	nodes      table[node]
	rings      []*[pageRows]siblings // by slot of nodes
	more       table[details]
	families   []*[pageRows]family // by slot of more
	index      pathIndex
	acls       aclTable
	quotas     quotaSet
	quotaTop   slot                       // the node at quotaPath
	sizeBytes  int64                      // sum of nodeSizeBytes
	perishable int                        // number of containers and TTL nodes
	listings   atomic.Pointer[[]*Listing] // that are not closed; nil if there are none
}

// newTree returns a tree without even a root.
func newTree() *tree {
	return &tree{
		nodes:    table[node]{epoch: 1},
		more:     table[details]{epoch: 1},
		index:    newPathIndex(),
		acls:     aclTable{byKey: map[string]*aclList{}},
		quotas:   quotaSet{byPath: map[string]*quota{}},
		quotaTop: noSlot,
	}
}

// siblings returns the siblings of the node at i.
func (t *tree) siblings(i slot) *siblings { return &t.rings[i/pageRows][i%pageRows] }

// family returns the family of n; nil if it is a plain one, of a node without children.
func (t *tree) family(n *node) *family {
	if n.more == noSlot {
		return nil
	}
	return &t.families[n.more/pageRows][n.more%pageRows]
}

// first returns the first child of n, noSlot if there is none.
func (t *tree) first(n *node) slot {
	if f := t.family(n); f != nil {
		return f.first
	}
	return noSlot
}

// childCount returns the number of n's children.
func (t *tree) childCount(n *node) int32 {
	if f := t.family(n); f != nil {
		return f.children
	}
	return 0
}

// rows are the rows that a snapshot keeps.
func (t *tree) rows() nodeRows { return nodeRows{t.nodes.pages, t.more.pages} }

// details returns the details of n.
func (t *tree) details(n *node) details {
	if n.more == noSlot {
		return plain(n.czxid, n.ctimeMs)
	}
	return *t.more.row(n.more)
}

// kind returns the kind of n.
func (t *tree) kind(n *node) nodeKind {
	if n.more == noSlot {
		return kindPersistent
	}
	return t.more.row(n.more).kind
}

// detail returns the details of the node at i for writing. From then on it has some of its own. The
// pointer is stale after the next call.
func (t *tree) detail(i slot) *details {
	n := t.nodes.row(i)
	if n.more != noSlot {
		return t.more.mut(n.more)
	}
	n = t.nodes.mut(i)
	more, d := t.more.add()
	*d = plain(n.czxid, n.ctimeMs)
	if len(t.families) < len(t.more.pages) {
		t.families = append(t.families, new([pageRows]family))
	}
	n.more = more
	f := t.family(n)
	*f = family{first: noSlot}
	f.count, f.bytes = t.ownSums(i)
	return d
}

// ownSums returns the part of the node at i in the sums of its family.
func (t *tree) ownSums(i slot) (count int32, bytes int64) {
	n := t.nodes.row(i)
	for at := i; at != noSlot; at = t.nodes.row(at).parent {
		if at == t.quotaTop {
			return 0, 0
		}
	}
	return 1, int64(len(n.data()))
}

// sums returns count and bytes of the family of the node at i.
func (t *tree) sums(i slot) (count int32, bytes int64) {
	if f := t.family(t.nodes.row(i)); f != nil {
		return f.count, f.bytes
	}
	return t.ownSums(i)
}

// stat returns the Stat of the node at i as clients see it.
func (t *tree) stat(i slot) wire.Stat {
	n := t.nodes.row(i)
	d, children := t.details(n), t.childCount(n)
	st := wire.Stat{
		Czxid: n.czxid, Mzxid: d.mzxid, Pzxid: d.pzxid,
		Ctime: n.ctimeMs, Mtime: d.mtimeMs,
		Version: d.version, Aversion: d.aversion,
		// Each child was created once, and those that are not there any more were deleted once.
		Cversion:    2*d.creates - children,
		DataLength:  int32(len(n.data())),
		NumChildren: children,
	}
	if d.kind == kindEphemeral {
		st.EphemeralOwner = wire.SessionID(d.owner)
	}
	return st
}

// insert adds r to the tree and to its quotas, as the last child of the node at parent; noSlot for
// the root.
func (t *tree) insert(r *record, parent slot) slot {
	path := r.path()
	i, n := t.nodes.add()
	*n = r.node
	n.parent, n.more = parent, noSlot
	if len(t.rings) < len(t.nodes.pages) {
		t.rings = append(t.rings, new([pageRows]siblings))
	}
	*t.siblings(i) = siblings{next: i, prev: i}
	t.indexAdd(i, path)
	if path == quotaPath {
		t.quotaTop = i
	}
	q := t.quotas.byPath[path]
	if r.details != plain(r.czxid, r.ctimeMs) || q != nil {
		*t.detail(i) = r.details
		t.family(t.nodes.row(i)).quota = q
	}
	if r.mayPerish() {
		t.perishable++
	}
	t.sizeBytes += nodeSizeBytes(path, r.data())
	if parent != noSlot {
		t.attach(i, parent)
	}
	if q != nil {
		t.quotas.touch(q)
	}
	if of, ok := limitsOf(path); ok {
		t.startQuota(of)
	}
	return i
}

// attach links the node at i to its parent, as the last child.
func (t *tree) attach(i, parent slot) {
	t.detail(parent)
	p := t.family(t.nodes.row(parent))
	if p.first == noSlot {
		p.first = i
	} else {
		s, first := t.siblings(i), t.siblings(p.first)
		s.next, s.prev = p.first, first.prev
		t.siblings(first.prev).next = i
		first.prev = i
	}
	p.children++
	p.nameBytes += int64(len(t.nodes.row(i).name()))
	count, bytes := t.sums(i)
	t.sumUp(i, 1, count, bytes)
	t.childAttached(i, parent)
}

// withdraw is the reverse of insert, for the node at i with that path. The node has no children.
// withdraw gives the reference to the ACL back.
func (t *tree) withdraw(i slot, path string) {
	if of, ok := limitsOf(path); ok {
		t.stopQuota(of)
	}
	n := *t.nodes.row(i)
	if f := t.family(&n); f != nil && f.quota != nil {
		t.quotas.touch(f.quota)
	}
	t.detach(i, &n)
	t.indexRemove(i, path)
	if k := t.kind(&n); k == kindContainer || k == kindTTL {
		t.perishable--
	}
	t.sizeBytes -= nodeSizeBytes(path, n.data())
	if n.more != noSlot {
		*t.family(&n) = family{}
		t.more.remove(n.more)
	}
	t.nodes.remove(i)
	t.acls.release(n.acl)
}

// detach is the reverse of attach, for n at i.
func (t *tree) detach(i slot, n *node) {
	t.childDetaching(i)
	s, p := t.siblings(i), t.family(t.nodes.row(n.parent))
	switch {
	case s.next == i:
		p.first = noSlot
	case p.first == i:
		p.first = s.next
	}
	t.siblings(s.prev).next = s.next
	t.siblings(s.next).prev = s.prev
	p.children--
	p.nameBytes -= int64(len(n.name()))
	count, bytes := t.sums(i)
	t.sumUp(i, -1, -count, -bytes)
}

// replaceData gives the node at i, with that path, other data. It leaves the Stat alone.
func (t *tree) replaceData(i slot, path string, data []byte) {
	n := t.nodes.mut(i)
	name, old := n.parts()
	diff := int64(len(data) - len(old))
	n.body = newBody(string(name), data)
	t.sizeBytes += diff
	if diff != 0 && !underQuota(path) {
		if f := t.family(n); f != nil {
			if f.bytes += diff; f.quota != nil {
				t.quotas.touch(f.quota)
			}
		}
		t.sumUp(i, 0, 0, diff)
	}
	if of, ok := limitsOf(path); ok {
		t.quotas.byPath[of].read = false
	}
}

// sumUp adds to the sums of the nodes above the one at i: below to all of them, count and bytes up
// to the nearest that has a quota, unless the node at i has one itself. It takes one step for each
// component of the path.
func (t *tree) sumUp(i slot, below, count int32, bytes int64) {
	n := t.nodes.row(i)
	own := t.family(n)
	counts := (own == nil || own.quota == nil) && (count != 0 || bytes != 0)
	if !counts && below == 0 {
		return
	}
	for at := n.parent; at != noSlot; {
		n := t.nodes.row(at)
		f := t.family(n)
		f.below += below
		if counts {
			f.count += count
			f.bytes += bytes
			if counts = f.quota == nil; !counts {
				t.quotas.touch(f.quota)
			}
		}
		at = n.parent
	}
}

// mayPerish reports whether a node is a container or TTL node, which the reaper deletes.
func (d *details) mayPerish() bool { return d.kind == kindContainer || d.kind == kindTTL }

// nodeSizeBytes is the node's part of the approximate size of the data (docs/protocol/semantics.md
// section 12).
func nodeSizeBytes(path string, data []byte) int64 {
	return int64(utf8.RuneCountInString(path) + len(data))
}

// perished reports whether the node at i has outlived its purpose: a container that has lost its
// last child (or, unless neverUsedMs is 0, has had none for longer than that), a TTL node without
// children that was not written to for longer than its time to live. nowMs is clock.nowMs.
func (t *tree) perished(i slot, nowMs int64, neverUsedMs int32) bool {
	n := t.nodes.row(i)
	if n.acl == nil || n.more == noSlot || t.childCount(n) > 0 {
		return false
	}
	switch d := t.more.row(n.more); d.kind {
	case kindContainer:
		return d.creates > 0 || neverUsedMs != 0 && nowMs-d.usedMs > int64(neverUsedMs)
	case kindTTL:
		return nowMs-d.usedMs > d.owner
	}
	return false
}

// allNodes returns an iterator over all nodes and their slots, in no particular order.
func (t *tree) allNodes() iter.Seq2[slot, *node] {
	return func(yield func(slot, *node) bool) {
		for i := range t.nodes.used {
			if n := t.nodes.row(i); n.acl != nil && !yield(i, n) {
				return
			}
		}
	}
}

// children returns an iterator over the slots of the children of the node at i, the oldest first
// (until the state has been through a snapshot, which keeps no order).
func (t *tree) children(i slot) iter.Seq[slot] {
	return func(yield func(slot) bool) {
		first := t.first(t.nodes.row(i))
		for c := first; c != noSlot; {
			if !yield(c) {
				return
			}
			if c = t.siblings(c).next; c == first {
				return
			}
		}
	}
}

// path returns the path of the node at i.
func (t *tree) path(i slot) string { return t.rows().path(i) }

// record returns the node at i, with all that a snapshot keeps.
func (t *tree) record(i slot) record {
	n, rows := t.nodes.row(i), t.rows()
	return rows.record(n, rows.dir(n))
}

// record is a node with all that a snapshot keeps, outside of the tree.
type record struct {
	dir  string // the path without the name; "/" of the root
	node        // parent and more count in its tree only
	details
}

// path returns the path of r.
func (r *record) path() string { return r.dir + string(r.name()) }

// splitPath returns dir and name of a record with that path.
func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}

// nodeRows are the rows of the nodes of a tree, or of a snapshot.
type nodeRows struct {
	nodes []*[pageRows]node
	more  []*[pageRows]details
}

func (r nodeRows) row(i slot) *node { return &r.nodes[i/pageRows][i%pageRows] }

// pathBytes returns the length of the path of the node at i.
func (r nodeRows) pathBytes(i slot) (bytes int) {
	for n := r.row(i); n.parent != noSlot; n = r.row(n.parent) {
		bytes += 1 + len(n.name())
	}
	return max(bytes, 1)
}

// path returns the path of the node at i.
func (r nodeRows) path(i slot) string {
	if r.row(i).parent == noSlot {
		return rootPath
	}
	return string(r.fill(i, make([]byte, r.pathBytes(i))))
}

// fill writes the path of the node at i, which is not the root, to the end of b, and returns b.
func (r nodeRows) fill(i slot, b []byte) []byte {
	end := len(b)
	for n := r.row(i); n.parent != noSlot; n = r.row(n.parent) {
		name := n.name()
		end -= len(name)
		copy(b[end:], name)
		end--
		b[end] = '/'
	}
	return b
}

// dir returns the dir of the record of n.
func (r nodeRows) dir(n *node) string {
	if n.parent == noSlot || r.row(n.parent).parent == noSlot {
		return rootPath
	}
	b := make([]byte, r.pathBytes(n.parent)+1)
	b[len(b)-1] = '/'
	r.fill(n.parent, b[:len(b)-1])
	return string(b)
}

// details returns the details of n, which are in room if n has none of its own.
func (r nodeRows) details(n *node, room *details) *details {
	if n.more != noSlot {
		return &r.more[n.more/pageRows][n.more%pageRows]
	}
	*room = plain(n.czxid, n.ctimeMs)
	return room
}

// record returns the record of n, which has that dir.
func (r nodeRows) record(n *node, dir string) record {
	return record{dir, *n, *r.details(n, new(details))}
}

// maxDirBytes is the size of the dirs that a walk over all records remembers.
const maxDirBytes = 1 << 20

// dirs remembers the dirs of records by the slots of the parents. Siblings share one.
type dirs struct {
	rows   nodeRows
	parent slot // the newest
	dir    string
	known  map[slot]string
	bytes  int
}

func (r nodeRows) newDirs() *dirs {
	return &dirs{rows: r, dir: rootPath, parent: noSlot, known: map[slot]string{}}
}

// of returns the dir of the record of n.
func (d *dirs) of(n *node) string {
	if n.parent == d.parent {
		return d.dir
	}
	dir, ok := d.known[n.parent]
	if !ok {
		if dir = d.rows.dir(n); d.bytes+len(dir) > maxDirBytes {
			clear(d.known)
			d.bytes = 0
		}
		d.known[n.parent] = dir
		d.bytes += len(dir)
	}
	d.parent, d.dir = n.parent, dir
	return dir
}

// all returns an iterator over the slots and the records of all nodes, in no particular order. The
// record is valid until the next one.
func (r nodeRows) all() iter.Seq2[slot, *record] {
	return func(yield func(slot, *record) bool) {
		known := r.newDirs()
		var rec record
		for at, page := range r.nodes {
			for k := range page {
				if n := &page[k]; n.acl != nil {
					if rec = r.record(n, known.of(n)); !yield(slot(at*pageRows+k), &rec) {
						return
					}
				}
			}
		}
	}
}

// parentsFirst returns an iterator over all nodes and their dirs. Each node comes after its parent.
func (r nodeRows) parentsFirst() iter.Seq2[string, *node] {
	return func(yield func(string, *node) bool) {
		known := r.newDirs()
		given := make([]bool, len(r.nodes)*pageRows)
		var above []slot // the present node, the deepest first
		for i := range slot(len(given)) {
			n := r.row(i)
			if n.acl == nil || given[i] {
				continue
			}
			above = above[:0]
			for at := n.parent; at != noSlot && !given[at]; at = r.row(at).parent {
				above = append(above, at)
			}
			for k := len(above) - 1; k >= 0; k-- {
				given[above[k]] = true
				if n := r.row(above[k]); !yield(known.of(n), n) {
					return
				}
			}
			given[i] = true
			if !yield(known.of(n), n) {
				return
			}
		}
	}
}
