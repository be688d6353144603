package znode

import (
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
//	nodes     any number of, in any order:
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
	nodes        []*[pageRows]node
	nodeCount    int
	sessions     []*[pageRows]session
	sessionCount int
	released     atomic.Bool
}

// Snapshot returns the state as it is now. It takes time for one pointer per 16 nodes. The caller
// writes it, also while Apply runs, and has to release it.
func (s *Store) Snapshot() *Snapshot {
	s.snapshots.Add(1)
	st := &s.state
	return &Snapshot{
		store: s, zxid: st.zxid, timeMs: st.timeMs, clock: st.clock, ended: st.sessions.generations.ended,
		cluster: st.cluster, membership: st.membership,
		nodes: st.tree.nodes.freeze(), nodeCount: st.tree.nodes.len(),
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
		sn.nodes, sn.sessions = nil, nil
	}
}

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
	for _, p := range sn.nodes {
		for i := range p {
			if p[i].kind != kindFree {
				bw.b = appendNode(bw.b, &p[i], acls)
				bw.split()
			}
		}
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
	b = appendString(b, s.addr)
	return appendIdentities(appendString(b, s.password), s.identities)
}

// appendNode encodes n; acls gives the numbers of the ACLs that have been written.
func appendNode(b []byte, n *node, acls map[*aclList]uint64) []byte {
	b = append(b, byte(n.kind))
	b = appendString(b, n.path)
	if n.data == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, 1+uint64(len(n.data)))
		b = append(b, n.data...)
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
	b = binary.AppendVarint(b, int64(n.mzxid-n.czxid))
	b = binary.AppendVarint(b, int64(n.pzxid-n.czxid))
	b = binary.AppendVarint(b, n.ctimeMs)
	b = binary.AppendVarint(b, n.mtimeMs-n.ctimeMs)
	b = binary.AppendVarint(b, int64(n.version))
	b = binary.AppendVarint(b, int64(n.creates))
	b = binary.AppendVarint(b, int64(n.aversion))
	b = binary.BigEndian.AppendUint64(b, uint64(n.owner))
	if n.mayPerish() {
		b = binary.AppendVarint(b, n.usedMs)
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
