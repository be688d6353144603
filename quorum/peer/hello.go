package peer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"lockkeeper/quorum/codec"
)

// Hello stream: a member that knows no leader queries the state of the others. The preface is the
// whole query; the answer:
//
//	 0       1        2      10        18        26      34         35       39        47
//	+-------+--------+------+---------+---------+-------+----------+--------+---------+-------+
//	| state | member | disk | counted | cluster | acked | set back | listed | version | state | ->
//	|       |        |      |         |         |       |          |        |         | term  |
//	+-------+--------+------+---------+---------+-------+----------+--------+---------+-------+
//	 55           63
//	+------------+--------+
//	| last index | digest | ->
//	+------------+--------+
//	+---+----------+---+----------------+---+--------------+
//	| n | role (n) | m | clientAddr (m) | k | peerAuth (k) | -> length, details
//	+---+----------+---+----------------+---+--------------+
//	+-------+------+---+--------------+
//	| ready | stop | n | notReady (n) |
//	+-------+------+---+--------------+
//
// Member is 1 if the sender of the query is a member, as far as the other knows. Disk and cluster
// are the other's (cluster 0: none), counted the disk that it knows under the number of the sender
// (0: none), acked the index up to which the sender's disk has acknowledged committed entries, as
// far as the other knows, set back 1 if it has answered the other with less than that, listed the
// checksum of the members in its configuration, version that of the members it knows. State term,
// last index and digest are those of Imported. Role, clientAddr and peerAuth are texts, those of
// Report, and details is a JSON object of figures. Ready, stop and notReady are those of Report.
const maxHello = 2 << 10 // bytes; more than an answer has

// State is how far a member has come.
type State byte

// The states of a member.
const (
	Blank State = 1 // it has no log; perhaps an imported state
	Used  State = 2
	// Lost is Blank of a disk with which no cluster begins: it replaces one, or the member begins a
	// cluster without the one that asks.
	Lost State = 3
)

// Imported identifies a state that a blank disk has from elsewhere; zero: it has none. Of two the
// one with the greater (StateTerm, Index) has all that the other one has; equal ones have equal
// digests.
type Imported struct {
	StateTerm, Index, Digest uint64
}

// Compare is less than 0 if o has more, and more than 0 if i has.
func (i Imported) Compare(o Imported) int {
	return cmp.Or(cmp.Compare(i.StateTerm, o.StateTerm), cmp.Compare(i.Index, o.Index))
}

// Hello is the state of a member as another one learns it.
type Hello struct {
	State   State
	Member  bool   // the receiver is a member, as far as the sender knows
	Disk    DiskID // the sender's
	Counted DiskID // that the sender knows under the number of the receiver; 0: none
	Cluster ClusterID
	Acked   uint64 // committed index that the receiver's disk has acknowledged, as the sender knows
	SetBack bool   // the receiver's disk has answered the sender with less
	Listed  uint32 // Sum of its configuration
	Version uint64 // of the members that it knows
	Imported
	Report
}

// Report is a member in its own words. Its texts are at most 255 bytes long, NotReady at most
// 160: all must fit into maxHello.
type Report struct {
	Role       string // as in quorum.Status
	ClientAddr string // host:port where clients connect; the host may be a wildcard
	PeerAuth   string // how others prove to it who they are; empty if that is not known
	// Protocol is the newest version of the protocol between members that it speaks; 0 if that is
	// not known. The preface has it, not the answer.
	Protocol uint8
	// Details are figures of the member, a JSON object of at most 1 KiB, which another member could
	// have made of anything; nil if it sends none.
	Details []byte
	// Ready says whether the member counts (quorum.Replica.Ready), NotReady why not.
	Ready    Readiness
	NotReady string
	Stop     StopState
}

// Readiness is whether a member counts.
type Readiness byte

// Whether a member counts; 0: it has not said.
const (
	IsReady    Readiness = 1
	IsNotReady Readiness = 2
)

// StopState is a set of bits.
type StopState byte

// The bits of a StopState.
const (
	MayStop    StopState = 1 // the leader has said that the member may stop now
	ToldToStop StopState = 2 // the member has been told to stop, and does so as soon as it may
)

func (h *Hello) code(c *codec.Codec) {
	codec.U8(c, &h.State)
	c.Bool(&h.Member)
	c.U64((*uint64)(&h.Disk))
	c.U64((*uint64)(&h.Counted))
	c.U64((*uint64)(&h.Cluster))
	c.U64(&h.Acked)
	c.Bool(&h.SetBack)
	codec.U32(c, &h.Listed)
	c.U64(&h.Version)
	c.U64(&h.StateTerm)
	c.U64(&h.Index)
	c.U64(&h.Digest)
	c.Text(&h.Role)
	c.Text(&h.ClientAddr)
	c.Text(&h.PeerAuth)
	c.Bytes(&h.Details)
	codec.U8(c, &h.Ready)
	codec.U8(c, &h.Stop)
	c.Text(&h.NotReady)
}

func (p *Port) serveHello(asked Identity, c net.Conn, handlers Handlers) {
	h := handlers.Hello(asked)
	h.Member, h.Listed = p.roster.isPeer(asked.Member, asked.Disk), Sum(p.cfg.Members)
	h.Disk, h.Cluster = p.cfg.Disk, p.roster.Cluster()
	h.Counted = countedDisk(p.local.Servers(), asked.Member, asked.Disk)
	_ = c.SetWriteDeadline(time.Now().Add(PrefaceTimeout))
	e := codec.Encode(nil)
	h.code(&e)
	_, _ = c.Write(e.Encoded())
}

// hello queries the state of a member.
func (p *Port) hello(ctx context.Context, id MemberID) (h Hello, err error) {
	s, err := p.Dial(ctx, id, StreamHello)
	if err != nil {
		return h, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	b, err := io.ReadAll(io.LimitReader(s, maxHello))
	if err != nil {
		return h, err
	}
	d := codec.Decode(b)
	if h.code(&d); d.Err() != nil && !d.More() { // a later version may send more
		return h, fmt.Errorf("peer: answer of member %d: %w", id, d.Err())
	}
	return h, nil
}

// Hello queries the states of several members at once; those that do not answer before ctx ends are
// not in the result.
func (p *Port) Hello(ctx context.Context, ids []MemberID) map[MemberID]Hello {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[MemberID]Hello{}
	for _, id := range ids {
		wg.Go(func() {
			if h, err := p.hello(ctx, id); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[id] = h
			}
		})
	}
	wg.Wait()
	return answers
}
