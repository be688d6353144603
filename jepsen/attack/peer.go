package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"lockkeeper/jepsen"
)

// Attackers know the public parts of the protocol between members: the preface, the kinds of
// streams, and the frames of raft's requests. When one of them changes, learnPeerPort fails.
const (
	prefaceMagic = "LKPR"
	// An attacker tries the versions of the protocol one after the other.
	firstVersion, lastVersion = 1, 32

	streamRaft     = 'R'
	streamForward  = 'F'
	streamLease    = 'L'
	streamHello    = 'H'
	streamTransfer = 'T'
	streamClaims   = 'C'

	rpcAppend   = 1
	rpcVote     = 3
	rpcSnapshot = 5
	rpcRefused  = 0xff

	// logConfiguration is raft's number for an entry that says who the members are.
	logConfiguration = 5
	// raftProtocol is the version of raft's own protocol in every header.
	raftProtocol = 3
)

// member is the address of the members, which attackers have, too, if they are on one of their
// hosts.
const member = "127.0.0.1"

// others are all members but the attacked one, a leader first.
func (p *Play) others() []*jepsen.Member {
	var list []*jepsen.Member
	for _, m := range p.cluster.Members() {
		switch m {
		case p.attacked:
		case p.leader:
			list = append([]*jepsen.Member{m}, list...)
		default:
			list = append(list, m)
		}
	}
	return list
}

// preface is the beginning of a connection between members.
func (p *Play) preface(stream byte) []byte {
	b := append([]byte(prefaceMagic), p.version, stream, byte(p.others()[0].ID), byte(p.attacked.ID))
	b = binary.BigEndian.AppendUint64(b, p.other)
	b = binary.BigEndian.AppendUint64(b, p.disk)
	return binary.BigEndian.AppendUint64(b, p.clusterID)
}

// hello asks the attacked member for its disk, the one that it counts under the number of another
// member, and its cluster. It tells everybody who speaks its version of the protocol.
func (p *Play) hello() (err error) {
	for p.version = firstVersion; p.version <= lastVersion; p.version++ {
		var c net.Conn
		if c, err = p.dial(p.attacked.PeerAddr, member); err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = c.Write(p.preface(streamHello))
		var answer [27]byte // its version, two bytes, and three numbers
		if err == nil {
			_, err = io.ReadFull(c, answer[:])
		}
		_ = c.Close()
		if err == nil {
			p.disk = binary.BigEndian.Uint64(answer[3:])
			p.other = binary.BigEndian.Uint64(answer[11:])
			p.clusterID = binary.BigEndian.Uint64(answer[19:])
			return nil
		}
	}
	return fmt.Errorf("attack: hello to %s: %w", p.attacked, err)
}

// learnPeerPort finds out, before the attack, the form of a preface and a request: without that the
// attacker would be turned away for another reason than it should be. A harmless request of raft,
// of a term that is long over, must be answered.
func (p *Play) learnPeerPort() (err error) {
	if err := p.hello(); err != nil {
		return err
	}
	c, _, _, err := p.raftStream()
	if err != nil {
		return err
	}
	return c.Close()
}

// open opens a stream to the attacked member as the leader would, or another member if it leads.
func (p *Play) open(stream byte) (net.Conn, error) {
	c, err := p.dial(p.attacked.PeerAddr, member)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = c.Write(p.preface(stream))
	var answer [2]byte // its version, and the length of the reason why it refuses
	if err == nil {
		_, err = io.ReadFull(c, answer[:])
	}
	if err == nil && answer[1] != 0 {
		err = errRefused
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("attack: preface: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// fields puts numbers and byte strings behind each other as raft's requests have them: uint64,
// uint32, byte; a []byte with its length in front.
func fields(values ...any) []byte {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case byte:
			b = append(b, v)
		case []byte:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		default:
			panic(fmt.Sprintf("attack: a field of type %T", v))
		}
	}
	return b
}

// name is the member as which attackers come, as raft knows it.
func (p *Play) name() []byte { return fmt.Appendf(nil, "%d-%016x", p.others()[0].ID, p.other) }

// header is the beginning of raft's requests: the version of its protocol, number and address of
// the member that asks.
func (p *Play) header() []byte { return fields(uint32(raftProtocol), p.name(), p.name()) }

// request is a frame of a raft stream.
func (p *Play) request(kind byte, values ...any) []byte {
	body := append(append([]byte{kind}, p.header()...), fields(values...)...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// errRefused is the answer of a member that has understood a request and does not follow it.
var errRefused = errors.New("refused")

// ask sends a request of raft and returns the term in the answer, and the rest behind the term.
func ask(c net.Conn, frame []byte) (term uint64, rest []byte, err error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(frame); err != nil {
		return 0, nil, err
	}
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 1 || n > 64<<10 {
		return 0, nil, fmt.Errorf("an answer of %d bytes", n)
	}
	body := make([]byte, n-1)
	if _, err := io.ReadFull(c, body); err != nil {
		return 0, nil, err
	}
	if head[4] == rpcRefused {
		return 0, nil, errRefused
	}
	skip := 4 // the version; then the answering member's number and address
	for range 2 {
		if len(body) < skip+4 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		skip += 4 + int(binary.BigEndian.Uint32(body[skip:]))
	}
	if len(body) < skip+8 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return binary.BigEndian.Uint64(body[skip:]), body[skip+8:], nil
}

// raftStream opens a raft stream and sends a harmless request. Its answer tells the term and the
// end of the log.
func (p *Play) raftStream() (c net.Conn, term, last uint64, err error) {
	if c, err = p.open(streamRaft); err != nil {
		return nil, 0, 0, err
	}
	term, rest, err := ask(c, p.request(rpcAppend, uint64(1), uint64(0), uint64(0), uint64(0), uint32(0)))
	if err == nil && (term <= 1 || len(rest) < 8) {
		err = fmt.Errorf("the answer is of term %d", term)
	}
	if err != nil {
		_ = c.Close()
		return nil, 0, 0, fmt.Errorf("attack: a harmless request of raft: %w", err)
	}
	return c, term, binary.BigEndian.Uint64(rest), nil
}

// reaction is a member's reaction to a request that no member may follow. The answer says whether
// it did in the byte behind the term.
func reaction(rest []byte, err error) string {
	switch {
	case err == nil && len(rest) > 0 && rest[0] == 0, errors.Is(err, errRefused):
		return refused
	case err == nil:
		return taken
	}
	return outcome(err)
}
