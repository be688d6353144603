package peer

import (
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
//	 0       1        2   4         8        12        20   21         21+n
//	+-------+--------+---+---------+--------+---------+---+----------+---+----------------+
//	| state | member | 0 | cluster | listed | version | n | role (n) | m | clientAddr (m) | ->
//	+-------+--------+---+---------+--------+---------+---+----------+---+----------------+
//	+---+--------------+
//	| k | peerAuth (k) | -> length, details
//	+---+--------------+
//
// Member is 1 if the sender of the query is a member, as far as the other knows. Cluster is the
// other's cluster (0: none), listed the checksum of the members in its configuration, version that
// of the members it knows. Role, clientAddr and peerAuth are texts, those of Report; members that
// do not know peerAuth leave it out, and so they do with details, a JSON object of figures.
const maxHello = 2 << 10 // bytes; more than an answer has

// State is how far a member has come.
type State byte

// The states of a member.
const (
	Blank State = 1 // it has no log
	Fresh State = 2 // its log has the first configuration only
	Used  State = 3
)

// Hello is the state of a member as another one learns it.
type Hello struct {
	State   State
	Member  bool   // the receiver is a member, as far as the sender knows
	Cluster uint32 // the sender's; 0: none
	Listed  uint32 // Sum of its configuration
	Version uint64 // of the members that it knows
	Report
}

// Report is what a member says of itself. Its texts are at most 255 bytes long.
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
}

func (h *Hello) code(c *codec.Codec) {
	var blank [2]uint8
	codec.U8(c, &h.State)
	c.Bool(&h.Member)
	codec.U8(c, &blank[0])
	codec.U8(c, &blank[1])
	codec.U32(c, &h.Cluster)
	codec.U32(c, &h.Listed)
	c.U64(&h.Version)
	c.Text(&h.Role)
	c.Text(&h.ClientAddr)
	if !c.Decoding() || c.More() {
		c.Text(&h.PeerAuth)
	}
	if !c.Decoding() && len(h.Details) > 0 || c.More() {
		c.Bytes(&h.Details)
	}
}

func (p *Port) serveHello(from MemberID, c net.Conn) {
	h := p.handlers.Hello()
	h.Member, h.Cluster, h.Listed = p.roster.isPeer(from), p.roster.Cluster(), Sum(p.cfg.Members)
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
