package zkdata

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"lockkeeper/wire"
)

// The format of a snapshot (docs/protocol/admin.md section 7.3). Integers are big-endian; a buffer
// is an int length, -1 for null, and its bytes; a string likewise.
//
//	int magic ZKSN | int version 2 | long db id
//	int n, n x (long session | int timeout)                        the sessions
//	int n, n x (long key | vector of ACL)                          the ACLs
//	(string path | buffer data | long key of the ACL | stat) ...   the nodes, parents first
//	string "/"
//	seal: long Adler-32 of all that precedes | string "/"
//	perhaps: long zxid | int version | long digest | seal          a digest of the tree
//	perhaps: long zxid | seal                                      the last zxid (3.9)
const (
	snapshotMagic   = 0x5A4B534E // "ZKSN"
	snapshotVersion = 2
	snapshotDBID    = -1
	// openACL is the key of the ACL that allows everything to everybody. It is in no table.
	openACL = -1
	// endPath ends the nodes, and each seal.
	endPath    = "/"
	sealLen    = 8 + 4 + 1
	digestLen  = 8 + 4 + 8
	zxidLen    = 8
	persistLen = 8 + 4*8 + 3*4 + 2*8 // the key of the ACL and the fields behind it
)

// ReadSnapshot reads a snapshot in any of ZooKeeper's compressions, which it recognises by the
// first bytes. name is the name of the file, for messages. The Zxid of the State is 0: ZooKeeper
// takes it from the name of the file. A node has no ACL if that came into being while the snapshot
// was written; the log has it then. Errors: DamageError, ErrTooLarge, and the errors of r.
func ReadSnapshot(r io.Reader, name string, limits Limits) (*State, error) {
	plain, err := decompress(bufio.NewReaderSize(r, 256<<10), name)
	if err != nil {
		return nil, err
	}
	sr := &snapshotReader{r: plain, name: name, sum: adler32.New(), limits: limits}
	s := emptyState()
	sr.header()
	sr.sessions(s)
	acls := sr.aclTable()
	sr.nodes(s, acls)
	sr.seal()
	sr.rest()
	if sr.err == nil && s.nodes[""] == nil {
		sr.fail("there is no root")
	}
	if sr.err != nil {
		return nil, sr.err
	}
	return s, nil
}

// Limits bound the state that is made of a snapshot, while it is read: a compressed file of a few
// MB may hold GB. Zero is no limit.
type Limits struct {
	Nodes     int
	DataBytes int64 // of paths and data
	Memory    int64 // of the state, as an estimate
}

// ErrTooLarge says that the state of a snapshot is beyond the Limits.
var ErrTooLarge = errors.New("the state is too large")

// Estimates of the memory that parts of a state take besides their bytes.
const (
	nodeMemory    = 512
	sessionMemory = 64
	aclMemory     = 64 // an entry
)

// decompress returns the stream that r holds, compressed or not.
func decompress(r *bufio.Reader, name string) (*bufio.Reader, error) {
	start, err := r.Peek(len(snappyMagic))
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("zkdata: read %s: %w", name, err)
	}
	switch {
	case bytes.HasPrefix(start, []byte{0x1F, 0x8B}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, &DamageError{File: name, Reason: err.Error()}
		}
		return bufio.NewReaderSize(z, 256<<10), nil
	case bytes.HasPrefix(start, snappyMagic):
		return bufio.NewReaderSize(&snappyReader{r: r}, 256<<10), nil
	}
	return r, nil
}

// snapshotReader reads values, sums them up, and keeps the first error.
type snapshotReader struct {
	r      *bufio.Reader
	name   string
	sum    hash.Hash32
	offset int64
	err    error
	fixed  [persistLen]byte
	grown  bytes.Buffer

	limits            Limits
	nodesRead         int
	dataBytes, memory int64
}

// spend counts memory that the state takes.
func (sr *snapshotReader) spend(bytes int) {
	if sr.memory += int64(bytes); sr.limits.Memory > 0 && sr.memory > sr.limits.Memory {
		sr.tooLarge("%d bytes of memory", sr.limits.Memory)
	}
}

func (sr *snapshotReader) tooLarge(format string, args ...any) {
	if sr.err == nil {
		sr.err = fmt.Errorf("zkdata: %s: %w: more than "+format, append([]any{sr.name, ErrTooLarge}, args...)...)
	}
}

// spendNode counts a node.
func (sr *snapshotReader) spendNode(path string, data []byte) {
	sr.spend(nodeMemory + 2*len(path) + len(data))
	if sr.nodesRead++; sr.limits.Nodes > 0 && sr.nodesRead > sr.limits.Nodes {
		sr.tooLarge("%d nodes", sr.limits.Nodes)
	}
	sr.dataBytes += int64(utf8.RuneCountInString(path) + len(data))
	if sr.limits.DataBytes > 0 && sr.dataBytes > sr.limits.DataBytes {
		sr.tooLarge("%d bytes of paths and data", sr.limits.DataBytes)
	}
}

func (sr *snapshotReader) fail(format string, args ...any) {
	if sr.err == nil {
		sr.err = &DamageError{File: sr.name, Offset: sr.offset, Reason: fmt.Sprintf(format, args...)}
	}
}

// stopped takes note of an error of the stream below.
func (sr *snapshotReader) stopped(err error) {
	switch {
	case sr.err != nil:
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		sr.fail("it ends too early")
	case errors.Is(err, errCompressed), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader),
		isFlateError(err):
		sr.fail("%v", err)
	default:
		sr.err = fmt.Errorf("zkdata: read %s: %w", sr.name, err)
	}
}

// take reads n bytes, at most persistLen. They are valid until the next call. After an error they
// are zeros.
func (sr *snapshotReader) take(n int) []byte {
	b := sr.fixed[:n]
	if sr.err == nil {
		if _, err := io.ReadFull(sr.r, b); err != nil {
			sr.stopped(err)
		}
	}
	if sr.err != nil {
		clear(b)
		return b
	}
	_, _ = sr.sum.Write(b)
	sr.offset += int64(n)
	return b
}

func (sr *snapshotReader) int32() int32 { return int32(binary.BigEndian.Uint32(sr.take(4))) }
func (sr *snapshotReader) int64() int64 { return int64(binary.BigEndian.Uint64(sr.take(8))) }

// bytes reads a buffer or string; nil is null. They are valid until the next call. Memory grows
// with the bytes that arrive, not with the announced length.
func (sr *snapshotReader) bytes() []byte {
	n := sr.int32()
	if sr.err != nil || n == -1 {
		return nil
	}
	if n < 0 || n > maxRecordBytes {
		sr.fail("a length of %d", n)
		return nil
	}
	sr.grown.Reset()
	if _, err := io.CopyN(&sr.grown, sr.r, int64(n)); err != nil {
		sr.stopped(err)
		return nil
	}
	b := sr.grown.Bytes()
	_, _ = sr.sum.Write(b)
	sr.offset += int64(n)
	if b == nil {
		return []byte{}
	}
	return b
}

func (sr *snapshotReader) string() string { return wire.DecodeUTF8(sr.bytes()) }

// count reads the number of elements of a list; the elements are read one by one, so that a wrong
// number makes nobody allocate for it.
func (sr *snapshotReader) count(what string) int {
	n := sr.int32()
	if n < 0 {
		if n != -1 {
			sr.fail("%d %s", n, what)
		}
		return 0
	}
	return int(n)
}

func (sr *snapshotReader) header() {
	if magic := sr.int32(); magic != snapshotMagic {
		sr.offset = 0
		sr.fail("this is no snapshot of ZooKeeper: it does not begin with ZKSN")
	}
	if version := sr.int32(); version != snapshotVersion {
		sr.fail("version %d of the snapshot, version %d is known", version, snapshotVersion)
	}
	sr.int64()
}

func (sr *snapshotReader) sessions(s *State) {
	for n := sr.count("sessions"); n > 0 && sr.err == nil; n-- {
		id := wire.SessionID(sr.int64())
		s.Sessions[id] = sr.int32()
		sr.spend(sessionMemory)
	}
}

// aclTable reads the ACLs by their keys.
func (sr *snapshotReader) aclTable() map[int64][]wire.ACL {
	acls := map[int64][]wire.ACL{openACL: wire.OpenACL}
	for n := sr.count("ACLs"); n > 0 && sr.err == nil; n-- {
		key := sr.int64()
		var acl []wire.ACL
		for k := sr.count("entries of an ACL"); k > 0 && sr.err == nil; k-- {
			a := wire.ACL{Perms: wire.Perm(sr.int32()), ID: wire.ID{Scheme: sr.string(), ID: sr.string()}}
			acl = append(acl, a)
			sr.spend(aclMemory + len(a.ID.Scheme) + len(a.ID.ID))
		}
		sr.spend(aclMemory)
		acls[key] = aclOrOpen(acl)
	}
	return acls
}

func (sr *snapshotReader) nodes(s *State, acls map[int64][]wire.ACL) {
	for sr.err == nil {
		start := sr.offset
		path := sr.string()
		if sr.err != nil || path == endPath {
			return
		}
		n := &Node{Data: bytes.Clone(sr.bytes())}
		b := sr.take(persistLen)
		key := int64(binary.BigEndian.Uint64(b))
		n.Czxid = wire.Zxid(binary.BigEndian.Uint64(b[8:]))
		n.Mzxid = wire.Zxid(binary.BigEndian.Uint64(b[16:]))
		n.CtimeMs = int64(binary.BigEndian.Uint64(b[24:]))
		n.MtimeMs = int64(binary.BigEndian.Uint64(b[32:]))
		n.Version = int32(binary.BigEndian.Uint32(b[40:]))
		n.Creates = int32(binary.BigEndian.Uint32(b[44:]))
		n.Aversion = int32(binary.BigEndian.Uint32(b[48:]))
		n.Owner = int64(binary.BigEndian.Uint64(b[52:]))
		n.Pzxid = wire.Zxid(binary.BigEndian.Uint64(b[60:]))
		if sr.err != nil {
			return
		}
		if sr.spendNode(path, n.Data); sr.err != nil {
			return
		}
		n.ACL = acls[key]
		if parent, _ := splitPath(path); path != "" && (path[0] != '/' || s.nodes[parent] == nil) {
			sr.offset = start
			sr.fail("node %q has no parent", path)
			return
		}
		if s.nodes[path] != nil {
			sr.offset = start
			sr.fail("there are two nodes %q", path)
			return
		}
		s.add(path, n)
	}
}

// seal reads a checksum of all before it.
func (sr *snapshotReader) seal() {
	computed, start := sr.sum.Sum32(), sr.offset
	if sum := sr.int64(); sr.err == nil && sum != int64(computed) {
		sr.offset = start
		sr.fail("checksum %08x, computed %08x", sum, computed)
	}
	if end := sr.string(); end != endPath {
		sr.fail("a checksum is followed by %q", end)
	}
}

// rest reads the parts that newer releases write behind the first seal, up to the end of the file.
// Their length identifies them.
func (sr *snapshotReader) rest() {
	if sr.err != nil {
		return
	}
	const longest = digestLen + sealLen + zxidLen + sealLen
	tail, err := io.ReadAll(io.LimitReader(sr.r, longest+1))
	if err != nil {
		sr.stopped(err)
		return
	}
	sr.r = bufio.NewReader(bytes.NewReader(tail))
	parts := map[int][]int{0: nil, digestLen + sealLen: {digestLen}, zxidLen + sealLen: {zxidLen},
		longest: {digestLen, zxidLen}}
	lengths, ok := parts[len(tail)]
	if !ok {
		sr.fail("%d bytes follow the checksum", len(tail))
	}
	for _, n := range lengths {
		sr.take(n)
		sr.seal()
	}
}

// WriteSnapshot writes a snapshot that ZooKeeper 3.4 and later read, not compressed. The name of
// its file has to be snapshot.<Zxid in hexadecimal digits>.
func (s *State) WriteSnapshot(w io.Writer) error {
	sw := &snapshotWriter{w: bufio.NewWriterSize(w, 256<<10), sum: adler32.New()}
	sw.int32(snapshotMagic)
	sw.int32(snapshotVersion)
	sw.int64(snapshotDBID)
	sw.int32(int32(len(s.Sessions)))
	for _, id := range slices.Sorted(maps.Keys(s.Sessions)) {
		sw.int64(int64(id))
		sw.int32(s.Sessions[id])
	}
	keys := sw.aclTable(s)
	for path, n := range s.Nodes() {
		sw.node(path, n, keys)
	}
	sw.bytes([]byte(endPath))
	sw.flush()
	sw.int64(int64(sw.sum.Sum32()))
	sw.bytes([]byte(endPath))
	sw.flush()
	if err := cmp.Or(sw.err, sw.w.Flush()); err != nil {
		return fmt.Errorf("zkdata: write snapshot: %w", err)
	}
	return nil
}

// snapshotWriter encodes values into b, and computes the checksum of the written bytes.
type snapshotWriter struct {
	w   *bufio.Writer
	sum hash.Hash32
	b   []byte
	err error
}

func (sw *snapshotWriter) int32(v int32) { sw.b = binary.BigEndian.AppendUint32(sw.b, uint32(v)) }
func (sw *snapshotWriter) int64(v int64) { sw.b = binary.BigEndian.AppendUint64(sw.b, uint64(v)) }

func (sw *snapshotWriter) bytes(v []byte) {
	if v == nil {
		sw.int32(-1)
		return
	}
	sw.int32(int32(len(v)))
	sw.b = append(sw.b, v...)
}

func (sw *snapshotWriter) flush() {
	_, _ = sw.sum.Write(sw.b)
	if sw.err == nil {
		_, sw.err = sw.w.Write(sw.b)
	}
	sw.b = sw.b[:0]
}

// aclTable writes the different ACLs, numbered in the order in which nodes use them, and returns
// their numbers.
func (sw *snapshotWriter) aclTable(s *State) map[string]int64 {
	open := aclKey(wire.OpenACL)
	keys := map[string]int64{open: openACL}
	var lists [][]wire.ACL
	for _, n := range s.Nodes() {
		k := aclKey(n.ACL)
		if _, known := keys[k]; !known {
			lists = append(lists, n.ACL)
			keys[k] = int64(len(lists))
		}
	}
	sw.int32(int32(len(lists)))
	for i, acl := range lists {
		sw.int64(int64(i + 1))
		sw.int32(int32(len(acl)))
		for _, a := range acl {
			sw.b = a.Append(sw.b)
		}
		sw.flush()
	}
	return keys
}

// aclKey is equal for equal ACLs.
func aclKey(acl []wire.ACL) string {
	var b []byte
	for _, a := range acl {
		b = a.Append(b)
	}
	return string(b)
}

func (sw *snapshotWriter) node(path string, n *Node, keys map[string]int64) {
	if path == "/" {
		path = ""
	}
	sw.bytes([]byte(path))
	sw.bytes(n.Data)
	sw.int64(keys[aclKey(n.ACL)])
	sw.int64(int64(n.Czxid))
	sw.int64(int64(n.Mzxid))
	sw.int64(n.CtimeMs)
	sw.int64(n.MtimeMs)
	sw.int32(n.Version)
	sw.int32(n.Creates)
	sw.int32(n.Aversion)
	sw.int64(n.Owner)
	sw.int64(int64(n.Pzxid))
	sw.flush()
}
