package attack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"lockkeeper/wire"
)

// taken is the outcome that no attacker on the peer port may see: the member has followed it.
const taken = "taken"

// peers are attacks on the port between members. Nothing that comes in there is authenticated.
func peers() []Attack {
	return []Attack{
		{
			Name: "peer-silence", Port: PeerPort, Disk: true,
			Sends: "1,500 connections that send nothing, while the log needs new segments",
			May:   []string{held, closed, refused, ok}, Least: 1500, LeastBytes: 8_000_000,
			play: peerSilence,
		},
		{
			Name: "peer-prefaces", Port: PeerPort,
			Sends: "prefaces of noise, of other versions, clusters, members and streams",
			May:   []string{closed, refused}, Least: 200, LeastBytes: 2000,
			play: peerPrefaces,
		},
		{
			Name: "peer-frames", Port: PeerPort, Disk: true,
			Sends: "valid prefaces of every stream, with frames of noise behind them",
			May:   []string{closed, refused, held}, Least: 40, LeastBytes: 40_000,
			play: peerFrames,
		},
		{
			Name: "peer-configuration", Port: PeerPort, Disk: true,
			Sends: "entries of the log that say who the members are: noise, or one whom nobody knows",
			May:   []string{closed, ok}, Least: 1, LeastBytes: 50,
			play: peerConfiguration,
		},
		{
			Name: "peer-snapshot", Port: PeerPort, Disk: true,
			Sends: "a snapshot of a later log in which there are no members",
			May:   []string{closed, refused}, Least: 1, LeastBytes: 50,
			play: peerSnapshot,
		},
		{
			Name: "peer-half-frames", Port: PeerPort,
			Sends: "40 frames of 60 MiB, over all kinds of streams, of which the half comes",
			May:   []string{held, closed, refused}, Least: 40, LeastBytes: 1_000_000,
			play: peerHalfFrames,
		},
		{
			Name: "peer-term", Port: PeerPort, Disk: true,
			Sends: "votes and entries of the term 2^64-1",
			May:   []string{closed, refused}, Least: 2, LeastBytes: 50,
			play: peerTerm,
		},
		{
			Name: "peer-transfer", Port: PeerPort, Leader: true,
			Sends: "the wish that another member leads, of somebody without the right",
			May:   []string{closed, refused}, Least: 1, LeastBytes: 10,
			play: peerTransfer,
		},
	}
}

// peerSilence holds connections from the members' own address and from others, and has the log
// grow: each of its segments is a file to be opened.
func peerSilence(ctx context.Context, p *Play) error {
	conns := p.openMany(1500, func(i int) (net.Conn, error) {
		from := member
		if i%3 != 0 {
			from = p.host(i % 20)
		}
		return p.dial(p.attacked.PeerAddr, from)
	})
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.leave()
	if err := c.make(p.path("log"), nil); err != nil {
		return err
	}
	for range 10 {
		err := c.do(wire.OpSetData, wire.SetDataRequest{Path: p.path("log"), Data: make([]byte, 1_000_000),
			Version: -1})
		p.saw(outcome(err))
	}
	p.hold(ctx, conns)
	return nil
}

func peerPrefaces(ctx context.Context, p *Play) error {
	rng := p.rng(0)
	return rounds(ctx, func() error {
		for i := range 200 {
			b := p.preface(streamRaft)
			switch i % 5 {
			case 0:
				binary.BigEndian.PutUint64(b, rng.Uint64())
			case 1:
				// A version that no member which speaks this one, or the two after it, has in
				// common.
				b[4] += byte(3 + rng.IntN(251))
			case 2:
				b[5] = byte(rng.IntN('A')) // no stream
			case 3:
				b[7] = byte(100 + rng.IntN(100)) // another member
			case 4:
				b[16+rng.IntN(16)] ^= byte(1 + rng.IntN(255)) // another disk, or another cluster
			}
			c, err := p.dial(p.attacked.PeerAddr, []string{member, p.host(0)}[i%2])
			if err != nil {
				p.saw(refused)
				continue
			}
			p.saw(p.ends(c, b))
		}
		return nil
	})
}

// ends sends bytes and says how the connection ends.
func (p *Play) ends(c net.Conn, b []byte) string {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	_, err := c.Write(b)
	if err == nil {
		_, err = io.Copy(io.Discard, c)
	}
	if err == nil {
		return closed
	}
	return outcome(err)
}

func peerFrames(ctx context.Context, p *Play) error {
	streams := []byte{streamRaft, streamForward, streamLease, streamTransfer, streamClaims}
	return each(len(streams), func(i int) error {
		rng, stream := p.rng(i), streams[i]
		return rounds(ctx, func() error {
			for range 10 {
				c, err := p.open(stream)
				if err != nil {
					p.saw(refused)
					continue
				}
				frame := noise(rng, 4+rng.IntN(10_000))
				if rng.IntN(2) == 0 { // a length that is right, and a kind that there is
					binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
					if len(frame) > 4 {
						frame[4] = byte(1 + rng.IntN(6))
					}
				}
				_, _ = c.Write(frame)
				_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if _, err := io.Copy(io.Discard, c); err == nil || isEnd(err) {
					p.saw(closed)
				} else {
					p.saw(held) // it waits for the rest, or for a byte that makes it no transfer
				}
				_ = c.Close()
			}
			return nil
		})
	})
}

// onlyMember is a configuration in which a member that there is not is the only one. It is
// well-formed (msgpack): {"Servers": [{"Suffrage": 0, "ID": "9-0000000000000009", "Address": the
// same}]}.
var onlyMember = []byte("\x81\xa7Servers\x91\x83\xa8Suffrage\x00\xa2ID\xb29-0000000000000009" +
	"\xa7Address\xb29-0000000000000009")

// peerConfiguration sends entries as the leader would, behind the end of the log.
func peerConfiguration(ctx context.Context, p *Play) error {
	rng, n := p.rng(0), 0
	return p.raftRounds(ctx, func(c net.Conn, term, last uint64) error {
		configuration := noise(rng, 1+rng.IntN(100))
		if n++; n%2 == 0 {
			configuration = onlyMember
		}
		entry := fields(last+1, term, byte(logConfiguration), uint64(0), configuration, []byte{})
		frame := p.request(rpcAppend, term, last, term, uint64(0), uint32(1))
		frame = append(frame, entry...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		// A member that has this entry of the leader by now says that all is well. If it took ours,
		// its state would differ from the others'.
		_, _, err := ask(c, frame)
		if errors.Is(err, errRefused) {
			err = io.EOF
		}
		p.saw(outcome(err))
		return nil
	})
}

// raftRounds calls round with a new stream of raft, the term and the end of the log, until ctx
// ends.
func (p *Play) raftRounds(ctx context.Context, round func(c net.Conn, term, last uint64) error) error {
	return rounds(ctx, func() error {
		c, term, last, err := p.raftStream()
		if err != nil {
			return err
		}
		defer c.Close()
		return round(c, term, last)
	})
}

func peerSnapshot(ctx context.Context, p *Play) error {
	return p.raftRounds(ctx, func(c net.Conn, term, last uint64) error {
		content := []byte("no snapshot")
		frame := p.request(rpcSnapshot, uint32(1), term, p.name(), last+1000, term, []byte{}, []byte{}, last+1000,
			uint64(len(content)))
		_, rest, err := ask(c, append(frame, content...))
		p.saw(reaction(rest, err))
		return nil
	})
}

func peerHalfFrames(ctx context.Context, p *Play) error {
	frame := append(binary.BigEndian.AppendUint32(nil, 60<<20), rpcAppend)
	frame = append(frame, make([]byte, 30<<20)...)
	p.hold(ctx, p.openMany(40, func(i int) (net.Conn, error) {
		c, err := p.open([]byte{streamRaft, streamForward, streamLease}[i%3])
		if err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(patience))
			_, _ = c.Write(frame)
		}
		return c, err
	}))
	return nil
}

// peerTerm asks for votes as one to whom the leadership is transferred, whom a member that has a
// leader hears too, and sends no entries.
func peerTerm(ctx context.Context, p *Play) error {
	const term = uint64(math.MaxUint64)
	return rounds(ctx, func() error {
		for _, frame := range [][]byte{
			p.request(rpcVote, term, uint64(1<<40), term-1, byte(1)),
			p.request(rpcAppend, term, uint64(0), uint64(0), uint64(0), uint32(0)),
		} {
			c, before, _, err := p.raftStream()
			if err != nil {
				return err
			}
			_, _, err = ask(c, frame)
			_ = c.Close() // the term afterwards counts
			// Elections raise the term by one or a few at a time.
			after, now, _, probe := p.raftStream()
			if probe == nil {
				_ = after.Close()
			}
			switch {
			case probe == nil && now > before+1000:
				p.saw(taken)
			case err == nil, errors.Is(err, errRefused):
				p.saw(refused) // it has answered in its own term
			default:
				p.saw(outcome(err))
			}
		}
		return nil
	})
}

func peerTransfer(ctx context.Context, p *Play) error {
	return rounds(ctx, func() error {
		c, err := p.open(streamTransfer)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		// To the other member, which is named; and no proof that somebody may wish that.
		_, err = c.Write([]byte{byte(p.others()[0].ID), 1, 0, 0})
		var answer []byte
		if err == nil {
			answer, err = io.ReadAll(io.LimitReader(c, 1<<10))
		}
		mode, modeErr := p.attacked.Mode(ctx)
		switch {
		case modeErr == nil && mode != "leader" || len(answer) > 0 && answer[0] == 0:
			p.saw(taken)
		case err == nil && len(answer) > 0:
			p.saw(refused)
		case err == nil || isEnd(err):
			p.saw(closed)
		default:
			return fmt.Errorf("transfer: %w", err)
		}
		return nil
	})
}
