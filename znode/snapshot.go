package znode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"lockkeeper/wire"
)

// The snapshot's format. Integers are big-endian; uvarint, varint and bytes are encoded as in
// Command.Append.
//
//	 0       8         12
//	+-------+---------+---------+---------+-----+
//	| magic | u32     | block   | block   | ... |
//	|       | version |         |         |     |
//	+-------+---------+---------+---------+-----+
//
//	block:
//	 0      1        5             9
//	+------+--------+-------------+---------+
//	| u8   | u32    | u32         | payload |
//	| kind | length | CRC-32C of  |         |
//	|      | of the | all before, |         |
//	|      | payload| kind, length|         |
//	|      |        | and payload |         |
//	+------+--------+-------------+---------+
//
// "All before" is the checksum of the block before, of magic and version for the first block: so a
// block cannot be missing, doubled or out of its place. The blocks are: one head; any number of
// blocks of sessions; any number of blocks of nodes; one end, without payload. Nothing follows the
// end.
//
//	head      u64 zxid | u64 time in ms | u64 number of nodes | u64 number of sessions |
//	            bytes members | u64 their version |
//	            u8 1 if they are being changed, else 0, and if so:
//	            u64 session | uvarint generation | uvarint seq | bytes members
//	            members are the text of /zookeeper/config
//	            u64 stamp of the clock | u64 its shift (clock) |
//	            u64 largest generation of a session that has ended |
//	            u64 ClusterID
//	sessions  any number of:
//	            u64 id | uvarint generation | uvarint lastSeq | varint timeoutMs |
//	            bytes addr | bytes password |
//	            uvarint n, n x (bytes scheme | bytes id), the identities
//	nodes     any number of, each after its parent:
//	            u8 kind | bytes path | uvarint 0 for null data, else 1 + length, and the data |
//	            uvarint number of the ACL, and if that is the next new number, the ACL |
//	            varint czxid, mzxid - czxid, pzxid - czxid | varint ctime, mtime - ctime |
//	            varint version, creates, aversion | u64 owner |
//	            of containers and TTL nodes: varint usedMs
//	ACL       uvarint n, n x (u32 perms | bytes scheme | bytes id)
//
// Derived values are not written: links, ephemerals by session, usage of quotas, totals.
const (
	snapshotMagic      = "lkznode\n"
	snapshotVersion    = 1
	snapshotHeaderSize = 8 + 4
	blockHeaderSize    = 1 + 4 + 4

	// blockFullSize is the size in bytes from which on a block is written out. A block is
	// larger than this by one node at most.
	blockFullSize = 64 << 10
	// blockMaxSize is the size in bytes that no block reaches: a node's path and data are parts
	// of one client frame.
	blockMaxSize = 1 << 30
)

type blockKind uint8

const (
	blockHead blockKind = iota + 1
	blockSessions
	blockNodes
	blockEnd
)

// Snapshot is the state at one moment. It shares memory with the Store, which copies rows before it
// changes them, until Release.
type Snapshot struct {
	store        *Store // only for counting the snapshots
	zxid         wire.Zxid
	timeMs       int64
	clock        clock
	ended        uint64 // generations.ended
	cluster      ClusterID
	membership   membership
	nodes        nodeRows
	nodeCount    int
	sessions     []*[pageRows]session
	sessionCount int
	released     atomic.Bool
}

// Snapshot returns the state as it is now. It takes time for one pointer per 36 nodes. The caller
// writes it, also while Apply runs, and has to release it.
func (s *Store) Snapshot() *Snapshot {
	s.snapshots.Add(1)
	st := &s.state
	return &Snapshot{
		store: s, zxid: st.zxid, timeMs: st.timeMs, clock: st.clock, ended: st.sessions.generations.ended,
		cluster: st.cluster, membership: st.membership,
		nodes: nodeRows{st.tree.nodes.freeze(), st.tree.more.freeze()}, nodeCount: st.tree.nodes.len(),
		sessions: st.sessions.rows.freeze(), sessionCount: st.sessions.rows.len(),
	}
}

// Zxid returns the zxid of the state that the snapshot shows.
func (sn *Snapshot) Zxid() wire.Zxid { return sn.zxid }

// Release gives the snapshot up, so that the Store need not spare its memory any more. It may be
// called more than once, from any goroutine, but not during WriteTo.
func (sn *Snapshot) Release() {
	if sn.released.CompareAndSwap(false, true) {
		sn.store.snapshots.Add(-1)
		sn.nodes, sn.sessions = nodeRows{}, nil
	}
}

// errInvalidPath says that no node can have the path of one.
var errInvalidPath = errors.New("invalid path")

// errReleased is a program error: the state is gone.
var errReleased = errors.New("it has been released")

// WriteTo writes the snapshot to w, in pieces of some 64 KB, and returns the number of bytes.
// Errors: the errors of w. Apply may run at the same time.
func (sn *Snapshot) WriteTo(w io.Writer) (int64, error) {
	if sn.released.Load() {
		return 0, fmt.Errorf("znode: write snapshot: %w", errReleased)
	}
	bw := newBlockWriter(w, snapshotVersion)
	head := binary.BigEndian.AppendUint64(nil, uint64(sn.zxid))
	head = binary.BigEndian.AppendUint64(head, uint64(sn.timeMs))
	head = binary.BigEndian.AppendUint64(head, uint64(sn.nodeCount))
	head = binary.BigEndian.AppendUint64(head, uint64(sn.sessionCount))
	bw.begin(blockHead)
	bw.b = append(bw.b, head...)
	bw.b = appendMembership(bw.b, &sn.membership)
	bw.b = binary.BigEndian.AppendUint64(bw.b, uint64(sn.clock.stampMs))
	bw.b = binary.BigEndian.AppendUint64(bw.b, uint64(sn.clock.shiftMs))
	bw.b = binary.BigEndian.AppendUint64(bw.b, sn.ended)
	bw.b = binary.BigEndian.AppendUint64(bw.b, uint64(sn.cluster))
	bw.begin(blockSessions)
	for _, p := range sn.sessions {
		for i := range p {
			if p[i].generation != 0 {
				bw.b = appendSession(bw.b, &p[i])
				bw.split()
			}
		}
	}
	bw.begin(blockNodes)
	acls := map[*aclList]uint64{}
	var room details
	for dir, n := range sn.nodes.parentsFirst() {
		bw.b = appendNode(bw.b, dir, n, sn.nodes.details(n, &room), acls)
		bw.split()
	}
	bw.begin(blockEnd)
	bw.end()
	if bw.err != nil {
		return bw.written, fmt.Errorf("znode: write snapshot: %w", bw.err)
	}
	return bw.written, nil
}

func appendMembership(b []byte, m *membership) []byte {
	b = appendString(b, ConfigText(m.members, m.version))
	b = binary.BigEndian.AppendUint64(b, uint64(m.version))
	ch := m.change
	if ch == nil {
		return append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(append(b, 1), uint64(ch.Session))
	b = binary.AppendUvarint(b, ch.Generation)
	b = binary.AppendUvarint(b, ch.Seq)
	return appendString(b, ConfigText(ch.Members, m.version))
}

func appendSession(b []byte, s *session) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(s.id))
	b = binary.AppendUvarint(b, s.generation)
	b = binary.AppendUvarint(b, s.lastSeq)
	b = binary.AppendVarint(b, int64(s.timeoutMs))
	b = appendString(b, s.addr.text)
	return appendIdentities(appendBytes(b, s.password[:]), s.listIdentities())
}

// appendNode encodes n with its dir (record) and its details; acls gives the numbers of the ACLs
// that have been written.
func appendNode(b []byte, dir string, n *node, d *details, acls map[*aclList]uint64) []byte {
	b = append(b, byte(d.kind))
	name, data := n.parts()
	b = binary.AppendUvarint(b, uint64(len(dir)+len(name)))
	b = append(append(b, dir...), name...)
	if data == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, 1+uint64(len(data)))
		b = append(b, data...)
	}
	number, known := acls[n.acl]
	if !known {
		number = uint64(len(acls))
		acls[n.acl] = number
	}
	b = binary.AppendUvarint(b, number)
	if !known {
		b = appendACL(b, n.acl.entries)
	}
	b = binary.AppendVarint(b, int64(n.czxid))
	b = binary.AppendVarint(b, int64(d.mzxid-n.czxid))
	b = binary.AppendVarint(b, int64(d.pzxid-n.czxid))
	b = binary.AppendVarint(b, n.ctimeMs)
	b = binary.AppendVarint(b, d.mtimeMs-n.ctimeMs)
	b = binary.AppendVarint(b, int64(d.version))
	b = binary.AppendVarint(b, int64(d.creates))
	b = binary.AppendVarint(b, int64(d.aversion))
	b = binary.BigEndian.AppendUint64(b, uint64(d.owner))
	if d.mayPerish() {
		b = binary.AppendVarint(b, d.usedMs)
	}
	return b
}

func appendACL(b []byte, acl []wire.ACL) []byte {
	b = binary.AppendUvarint(b, uint64(len(acl)))
	for _, a := range acl {
		b = binary.BigEndian.AppendUint32(b, uint32(a.Perms))
		b = appendString(b, a.Scheme)
		b = appendString(b, a.ID.ID)
	}
	return b
}

// blockWriter collects payloads and writes blocks. After an error it only counts.
type blockWriter struct {
	w       io.Writer
	b       []byte // the block that is being made, with space for its header
	kind    blockKind
	sum     uint32 // of the newest block
	written int64
	err     error
}

func newBlockWriter(w io.Writer, version uint32) *blockWriter {
	header := binary.BigEndian.AppendUint32([]byte(snapshotMagic), version)
	bw := &blockWriter{w: w, sum: crc32.Checksum(header, castagnoli)}
	bw.write(header)
	return bw
}

func (bw *blockWriter) write(b []byte) {
	if bw.err == nil {
		var n int
		n, bw.err = bw.w.Write(b)
		bw.written += int64(n)
	}
}

// begin ends the block that is being made, if it has a payload, and starts another.
func (bw *blockWriter) begin(kind blockKind) {
	if len(bw.b) > blockHeaderSize {
		bw.end()
	}
	bw.kind = kind
	bw.b = append(bw.b[:0], make([]byte, blockHeaderSize)...)
}

// split starts another block of the same kind if this one is full.
func (bw *blockWriter) split() {
	if len(bw.b) >= blockFullSize {
		bw.begin(bw.kind)
	}
}

// end writes the block that is being made.
func (bw *blockWriter) end() {
	payload := bw.b[blockHeaderSize:]
	bw.b[0] = byte(bw.kind)
	binary.BigEndian.PutUint32(bw.b[1:], uint32(len(payload)))
	bw.sum = blockSum(bw.sum, bw.b[:5], payload)
	binary.BigEndian.PutUint32(bw.b[5:], bw.sum)
	bw.write(bw.b)
}

// blockSum is the checksum of a block: before is the checksum of the block before, start its kind
// and length.
func blockSum(before uint32, start, payload []byte) uint32 {
	return crc32.Update(crc32.Update(before, castagnoli, start), castagnoli, payload)
}

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
	st.tree.quotas.forget()
	return newStore(st), nil
}

// restorer fills a state from blocks.
type restorer struct {
	r    blockReader
	st   *state
	acls []*aclList // by number
	last blockKind  // of the newest block, 0 before the first

	// The numbers of nodes and sessions that have been read, and that the head announces.
	nodes, sessions       uint64
	nodesDue, sessionsDue uint64
	// skip is called with the parent of each ephemeral node, which is left out, and so are all
	// sessions; nil: all are taken.
	skip func(parent slot)
	dir  string // of the newest node: the next one is likely to be its sibling
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
		if err := rs.st.tree.checkBuiltIn(); err != nil {
			return false, fmt.Errorf("%w: %w", ErrDamaged, err)
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
	}
	addr := d.string()
	row.password = d.password()
	row.setIdentities(d.identities())
	if d.err != nil {
		return
	}
	rs.sessions++
	if _, ok := rs.st.sessions.slots[row.id]; ok || row.generation == 0 || !mayBeSession(row.id) {
		d.fail("bad session " + row.id.String())
		return
	}
	if rs.skip == nil {
		rs.st.sessions.add(row, addr)
	}
}

func (rs *restorer) node(d *decoder) {
	var n record
	n.kind = nodeKind(d.u8())
	var name string
	var data []byte
	n.dir, name = rs.path(d)
	if size := d.uvarint(); size > 0 {
		data = d.take(size - 1)
	}
	n.body = newBody(name, data)
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
	if err := rs.add(&n, n.path()); err != nil {
		d.fail(err.Error())
	}
}

// path reads the path of a node, as its dir and its name.
func (rs *restorer) path(d *decoder) (dir, name string) {
	path := d.take(d.uvarint())
	end := bytes.LastIndexByte(path, '/') + 1
	if string(path[:end]) != rs.dir {
		rs.dir = string(path[:end])
	}
	return rs.dir, string(path[end:])
}

// add adds a node that has been read.
func (rs *restorer) add(n *record, path string) error {
	if rs.skip != nil && n.kind == kindEphemeral {
		if !ValidPath(path) {
			return errInvalidPath
		}
		parent, err := rs.st.parentOf(path)
		if err == nil {
			rs.skip(parent)
		}
		return err
	}
	n.acl.refs++
	return rs.st.add(n, path)
}

// add adds a node that comes from elsewhere, with that path, after its parent. It holds a reference
// to its ACL. The error says why the node cannot be.
func (st *state) add(n *record, path string) error {
	if err := st.checkNode(n, path); err != nil {
		return fmt.Errorf("node %q: %w", path, err)
	}
	if _, ok := st.tree.find(path); ok {
		return fmt.Errorf("there are two nodes %q", path)
	}
	parent, err := st.parentOf(path)
	if err == nil {
		st.own(st.tree.insert(n, parent), len(path))
	}
	return err
}

// parentOf returns the parent for a node with that path, which is to be added; noSlot for the root.
func (st *state) parentOf(path string) (slot, error) {
	if path == rootPath {
		return noSlot, nil
	}
	parent, ok := st.tree.find(parentOf(path))
	if !ok {
		return noSlot, fmt.Errorf("node %q has no parent", path)
	}
	if st.tree.kind(st.tree.nodes.row(parent)) == kindEphemeral {
		return noSlot, fmt.Errorf("the parent of node %q is ephemeral", path)
	}
	return parent, nil
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

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	Zxid            wire.Zxid
	Nodes, Sessions uint64
	Cluster         ClusterID // 0: it does not say
	// Bytes is the size of its nodes, as in Size, without their ACLs.
	Bytes int64
}

// SnapshotScanner reads a snapshot block by block, without making a state of it. RestoreBegin takes
// the header and RestoreBlock the blocks. Only these find contradictions between blocks.
type SnapshotScanner struct {
	r    io.Reader
	br   blockReader
	raw  bytes.Buffer
	done bool
	info SnapshotInfo
}

// NewSnapshotScanner returns a scanner that reads from r.
func NewSnapshotScanner(r io.Reader) *SnapshotScanner {
	sc := &SnapshotScanner{r: r}
	sc.br.r = io.TeeReader(r, &sc.raw)
	return sc
}

// Header reads the header.
func (sc *SnapshotScanner) Header() ([]byte, error) {
	if err := sc.br.header(); err != nil {
		return nil, fmt.Errorf("znode: read snapshot: %w", err)
	}
	return bytes.Clone(sc.raw.Bytes()), nil
}

// Next reads the next block, which is valid until the next call. Errors: io.EOF behind the last
// one, when nothing follows it; ErrDamaged, ErrNewer; an error of the reader.
func (sc *SnapshotScanner) Next() ([]byte, error) {
	if sc.done {
		if err := sc.br.eof(); err != nil {
			return nil, fmt.Errorf("znode: read snapshot: %w", err)
		}
		return nil, io.EOF
	}
	sc.raw.Reset()
	kind, payload, err := sc.br.next()
	if err != nil {
		return nil, fmt.Errorf("znode: read snapshot: %w", err)
	}
	switch kind {
	case blockHead:
		if len(payload) < 5*8 {
			return nil, fmt.Errorf("znode: read snapshot: %w: bad head", ErrDamaged)
		}
		sc.info = SnapshotInfo{Zxid: wire.Zxid(binary.BigEndian.Uint64(payload)),
			Nodes: binary.BigEndian.Uint64(payload[16:]), Sessions: binary.BigEndian.Uint64(payload[24:])}
		sc.info.Bytes = int64(min(sc.info.Nodes, 1<<40)) * NodeMemory
		sc.info.Cluster = ClusterID(binary.BigEndian.Uint64(payload[len(payload)-8:]))
	case blockNodes:
		sc.info.Bytes += int64(len(payload))
	case blockEnd:
		sc.done = true
	}
	return sc.raw.Bytes(), nil
}

// Info describes the snapshot as far as it has been read: completely after the last block.
func (sc *SnapshotScanner) Info() SnapshotInfo { return sc.info }

// ScanSnapshot reads a snapshot up to the end of r and verifies its checksums.
func ScanSnapshot(r io.Reader) (SnapshotInfo, error) {
	sc := NewSnapshotScanner(r)
	_, err := sc.Header()
	for err == nil {
		_, err = sc.Next()
	}
	if err != io.EOF {
		return sc.info, err
	}
	return sc.info, nil
}
