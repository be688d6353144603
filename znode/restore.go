package znode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"lockkeeper/wire"
)

// Restore reads a state that Snapshot.WriteTo wrote, up to the end of r. It refuses everything
// else. Errors: ErrNewer for a snapshot of a later version of this program; ErrDamaged for one that
// was changed, cut off or continued, or contradicts itself; an error of r. It allocates at most in
// proportion to the bytes that it reads.
func Restore(r io.Reader) (*Store, error) {
	st := empty()
	rs := &restorer{r: blockReader{r: r}, st: st}
	if err := rs.read(); err != nil {
		return nil, fmt.Errorf("znode: restore: %w", err)
	}
	if err := st.derive(); err != nil {
		return nil, fmt.Errorf("znode: restore: %w: %w", ErrDamaged, err)
	}
	return newStore(st), nil
}

// restorer fills the rows of a state from blocks.
type restorer struct {
	r    blockReader
	st   *state
	acls []*aclList // by number
	last blockKind  // of the newest block, 0 before the first

	// The numbers of nodes and sessions that have been read, and that the head announces.
	nodes, sessions       uint64
	nodesDue, sessionsDue uint64
	// skip is called with each ephemeral node, which is left out, and so are all sessions; nil:
	// all are taken.
	skip func(*node)
}

func (rs *restorer) read() error {
	if err := rs.r.header(); err != nil {
		return err
	}
	for {
		kind, payload, err := rs.r.next()
		if err != nil {
			return err
		}
		if done, err := rs.block(kind, payload); err != nil {
			return err
		} else if done {
			return rs.r.eof()
		}
	}
}

// block takes the next block, and reports whether it was the last one.
func (rs *restorer) block(kind blockKind, payload []byte) (done bool, err error) {
	if kind < max(rs.last, blockHead) || kind == blockHead && rs.last == blockHead || kind > blockEnd {
		return false, fmt.Errorf("%w: block kind %d after %d", ErrDamaged, kind, rs.last)
	}
	first := rs.last == 0
	rs.last = kind
	d := decoder{b: payload}
	switch {
	case first:
		return false, rs.head(kind, payload)
	case kind == blockSessions:
		for len(d.b) > 0 && d.err == nil {
			rs.session(&d)
		}
	case kind == blockNodes:
		for len(d.b) > 0 && d.err == nil {
			rs.node(&d)
		}
	case kind == blockEnd:
		if len(payload) != 0 || rs.nodes != rs.nodesDue || rs.sessions != rs.sessionsDue {
			return false, fmt.Errorf("%w: %d nodes of %d, %d sessions of %d", ErrDamaged,
				rs.nodes, rs.nodesDue, rs.sessions, rs.sessionsDue)
		}
		return true, nil
	}
	return false, d.err
}

// head takes the first block.
func (rs *restorer) head(kind blockKind, payload []byte) error {
	d := decoder{b: payload}
	rs.st.zxid = wire.Zxid(d.u64())
	rs.st.timeMs = int64(d.u64())
	rs.nodesDue, rs.sessionsDue = d.u64(), d.u64()
	rs.membership(&d)
	rs.st.clock = clock{int64(d.u64()), int64(d.u64())}
	rs.st.sessions.generations.ended = d.u64()
	rs.st.cluster = ClusterID(d.u64())
	if kind != blockHead || d.err != nil || len(d.b) != 0 {
		return fmt.Errorf("%w: bad head", ErrDamaged)
	}
	return nil
}

func (rs *restorer) membership(d *decoder) {
	m := &rs.st.membership
	m.members = rs.members(d)
	m.version = wire.Zxid(d.u64())
	if d.u8() == 1 {
		m.change = &Change{Session: wire.SessionID(d.u64()), Generation: d.uvarint(), Seq: d.uvarint(),
			Members: rs.members(d)}
	}
}

func (rs *restorer) members(d *decoder) []Member {
	text := d.string()
	if text == "" {
		return nil
	}
	ms, _, err := ParseConfigText(text)
	if err != nil {
		d.fail(err.Error())
	}
	return ms
}

func (rs *restorer) session(d *decoder) {
	row := session{
		id:         wire.SessionID(d.u64()),
		generation: d.uvarint(),
		lastSeq:    d.uvarint(),
		timeoutMs:  d.varint32(),
		addr:       d.string(),
		password:   d.string(),
		identities: d.identities(),
	}
	if d.err != nil {
		return
	}
	rs.sessions++
	if _, ok := rs.st.sessions.slots[row.id]; ok || row.generation == 0 || !mayBeSession(row.id) {
		d.fail("bad session " + row.id.String())
		return
	}
	if rs.skip == nil {
		rs.st.sessions.add(row)
	}
}

func (rs *restorer) node(d *decoder) {
	n := node{kind: nodeKind(d.u8()), path: d.string()}
	if size := d.uvarint(); size > 0 {
		n.data = keep(d.take(size - 1))
	}
	n.acl = rs.acl(d)
	n.czxid = wire.Zxid(d.varint())
	n.mzxid = n.czxid + wire.Zxid(d.varint())
	n.pzxid = n.czxid + wire.Zxid(d.varint())
	n.ctimeMs = d.varint()
	n.mtimeMs = n.ctimeMs + d.varint()
	n.version, n.creates, n.aversion = d.varint32(), d.varint32(), d.varint32()
	n.owner = int64(d.u64())
	if n.mayPerish() {
		n.usedMs = d.varint()
	}
	if d.err != nil {
		return
	}
	rs.nodes++
	if rs.skip != nil && n.kind == kindEphemeral {
		rs.skip(&n)
		return
	}
	n.acl.refs++
	if _, ok := rs.st.tree.paths[n.path]; ok {
		d.fail(fmt.Sprintf("two nodes %q", n.path))
		return
	}
	rs.st.tree.place(n)
}

// acl reads the number of an ACL, and the ACL if it is new. Never nil unless d has failed.
func (rs *restorer) acl(d *decoder) *aclList {
	number := d.uvarint()
	if number < uint64(len(rs.acls)) {
		return rs.acls[number]
	}
	if number > uint64(len(rs.acls)) {
		d.fail("ACL that has not been defined")
		return nil
	}
	acl := make([]wire.ACL, d.count(4+1+1))
	for i := range acl {
		acl[i] = wire.ACL{Perms: wire.Perm(d.u32()), ID: wire.ID{Scheme: d.string(), ID: d.string()}}
	}
	if d.err == nil && len(acl) == 0 {
		d.fail("empty ACL")
	}
	if d.err != nil {
		return nil
	}
	list := rs.st.tree.acls.intern(acl)
	if list.refs--; list.refs != 0 {
		d.fail("ACL defined twice")
		return nil
	}
	rs.acls = append(rs.acls, list)
	return list
}

// derive makes all that follows from the rows: links, ephemerals of sessions, quotas.
func (st *state) derive() error {
	d := derivation{st: st}
	for {
		if done, err := d.step(math.MaxInt); done || err != nil {
			st.tree.quotas.forget()
			return err
		}
	}
}

// derivation does it in steps.
type derivation struct {
	st     *state
	begun  bool
	next   slot     // the next node to link
	limits []string // the paths with quotas that are not active yet
}

// step does the work for n nodes at the most, and reports whether it was the last. Quotas are
// active and dirty then.
func (d *derivation) step(n int) (done bool, err error) {
	t := d.st.tree
	if !d.begun {
		d.begun = true
		if err := t.checkBuiltIn(); err != nil {
			return false, err
		}
	}
	for ; n > 0 && d.next < t.nodes.used; n-- {
		if err := d.link(d.next); err != nil {
			return false, err
		}
		d.next++
	}
	for ; n > 0 && len(d.limits) > 0; n-- {
		t.startQuota(d.limits[0])
		d.limits = d.limits[1:]
	}
	return d.next == t.nodes.used && len(d.limits) == 0, nil
}

func (d *derivation) link(i slot) error {
	t := d.st.tree
	n := t.nodes.row(i)
	if err := d.st.checkNode(n); err != nil {
		return fmt.Errorf("node %q: %w", n.path, err)
	}
	if n.path == rootPath {
		return nil
	}
	parent, ok := t.paths[parentOf(n.path)]
	if !ok {
		return fmt.Errorf("node %q has no parent", n.path)
	}
	t.attach(i, parent)
	d.st.own(i)
	if err := t.checkParent(parent); err != nil {
		return fmt.Errorf("node %q: %w", parentOf(n.path), err)
	}
	if of, ok := limitsOf(n.path); ok {
		d.limits = append(d.limits, of)
	}
	return nil
}

// blockReader reads the blocks of a blockWriter.
type blockReader struct {
	r   io.Reader
	buf bytes.Buffer
	sum uint32
}

// full reads exactly len(b) bytes. An early end is damage.
func (br *blockReader) full(b []byte) error {
	_, err := io.ReadFull(br.r, b)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return err
}

func (br *blockReader) header() error {
	var b [snapshotHeaderSize]byte
	if err := br.full(b[:]); err != nil {
		return err
	}
	version := binary.BigEndian.Uint32(b[8:])
	switch {
	case string(b[:8]) != snapshotMagic:
		return fmt.Errorf("%w: it is not a snapshot", ErrDamaged)
	case version > snapshotVersion:
		return fmt.Errorf("%w: it has format %d, this program reads %d", ErrNewer, version, snapshotVersion)
	case version == 0:
		return fmt.Errorf("%w: format version %d", ErrDamaged, version)
	}
	br.sum = crc32.Checksum(b[:], castagnoli)
	return nil
}

// next reads one block. The payload is valid until the next call.
func (br *blockReader) next() (blockKind, []byte, error) {
	var head [blockHeaderSize]byte
	if err := br.full(head[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length >= blockMaxSize {
		return 0, nil, fmt.Errorf("%w: block of %d bytes", ErrDamaged, length)
	}
	// CopyN grows the buffer with the bytes that arrive, so a damaged length allocates little.
	br.buf.Reset()
	if _, err := io.CopyN(&br.buf, br.r, int64(length)); err == io.EOF {
		return 0, nil, fmt.Errorf("%w: it ends too early", ErrDamaged)
	} else if err != nil {
		return 0, nil, err
	}
	payload := br.buf.Bytes()
	br.sum = blockSum(br.sum, head[:5], payload)
	if want := binary.BigEndian.Uint32(head[5:]); br.sum != want {
		return 0, nil, fmt.Errorf("%w: checksum %08x, computed %08x", ErrDamaged, want, br.sum)
	}
	return blockKind(head[0]), payload, nil
}

// eof checks that nothing follows.
func (br *blockReader) eof() error {
	var b [1]byte
	switch _, err := io.ReadFull(br.r, b[:]); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%w: something follows the end", ErrDamaged)
	default:
		return err
	}
}
