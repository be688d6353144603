package peer

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// Hello stream: a member that knows no leader queries the state of the others. The preface is the
// whole query; the answer:
//
//	 0       1        2   4         8        12        20  21         21+n
//	+-------+--------+---+---------+--------+---------+---+----------+---+----------------+
//	| state | member | 0 | cluster | listed | version | n | role (n) | m | clientAddr (m) |
//	+-------+--------+---+---------+--------+---------+---+----------+---+----------------+
//
// Member is 1 if the sender of the query is a member, as far as the other knows. Cluster is the
// other's cluster (0: none), listed the checksum of the members in its configuration, version that
// of the members it knows. Role and clientAddr are texts, those of Report; older members send the
// first 20 bytes only.
const (
	helloLen    = 20
	helloMaxLen = helloLen + 2*(1+math.MaxUint8)
)

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
	// Protocol is the newest version of the protocol between members that it speaks; 0 if that is
	// not known. The preface has it, not the answer.
	Protocol uint8
}

// append encodes h.
func (h *Hello) append(b []byte) []byte {
	b = append(b, byte(h.State), 0, 0, 0)
	if h.Member {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint32(b, h.Cluster)
	b = binary.BigEndian.AppendUint32(b, h.Listed)
	b = binary.BigEndian.AppendUint64(b, h.Version)
	for _, text := range []string{h.Role, h.ClientAddr} {
		b = append(b, byte(min(len(text), math.MaxUint8)))
		b = append(b, text[:min(len(text), math.MaxUint8)]...)
	}
	return b
}

// decodeHello decodes an answer of at least helloLen bytes.
func decodeHello(b []byte) Hello {
	report := b[helloLen:]
	next := func() (text string) {
		if len(report) > 0 && len(report) > int(report[0]) {
			text, report = string(report[1:1+report[0]]), report[1+report[0]:]
		}
		return text
	}
	return Hello{Report: Report{Role: next(), ClientAddr: next()}, State: State(b[0]), Member: b[1] == 1, Cluster: binary.BigEndian.Uint32(b[4:]),
		Listed: binary.BigEndian.Uint32(b[8:]), Version: binary.BigEndian.Uint64(b[12:])}
}

func (p *Port) serveHello(from MemberID, c net.Conn) {
	h := p.handlers.Hello()
	h.Member, h.Cluster, h.Listed = p.roster.isPeer(from), p.roster.Cluster(), Sum(p.cfg.Members)
	_ = c.SetWriteDeadline(time.Now().Add(PrefaceTimeout))
	_, _ = c.Write(h.append(nil))
}

// hello queries the state of a member.
func (p *Port) hello(ctx context.Context, id MemberID) (h Hello, err error) {
	s, err := p.Dial(ctx, id, StreamHello)
	if err != nil {
		return h, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	b, err := io.ReadAll(io.LimitReader(s, helloMaxLen))
	if len(b) < helloLen {
		return h, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return decodeHello(b), nil
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
