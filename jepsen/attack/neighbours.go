package attack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// neighbours are attacks on the sessions of others, and on their share of a member.
func neighbours() []Attack {
	return []Attack{
		{
			Name: "wrong-passwords", Port: ClientPort,
			Sends: "attaches to every session that cons shows, with passwords that are guessed, from ten addresses",
			May:   []string{refused, closed}, Least: 200, LeastBytes: 8000,
			play: wrongPasswords,
		},
		{
			Name: "watched-ephemerals", Port: ClientPort,
			Sends: "sessions with 2,000 ephemeral nodes each, closed at once, below what 100 connections watch recursively",
			May:   []string{ok, closed, "BadArguments"}, Least: 1, LeastBytes: 100_000,
			play: watchedEphemerals,
		},
		{
			Name: "http-streams", Port: HTTPPort,
			Sends: "streams of events from four addresses, as many as are taken, which nobody reads, while the same addresses ask /live",
			May:   []string{"200", closed, held}, Least: 60, LeastBytes: 2000,
			play: httpStreams,
		},
	}
}

// logBytes bounds the log of a member after some hundreds of attempts.
const logBytes = 64 << 10

// sessionIDs are those that the members show to everybody.
func (p *Play) sessionIDs(ctx context.Context) (ids []wire.SessionID, err error) {
	for _, m := range p.cluster.Members() {
		text, err := jepsen.FourLetter(ctx, m.ClientAddr, "cons")
		if err != nil {
			return nil, err
		}
		for _, part := range strings.Split(text, ",sid=")[1:] {
			var id uint64
			if _, err := fmt.Sscanf(part, "0x%x,", &id); err == nil && id != 0 {
				ids = append(ids, wire.SessionID(id))
			}
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("attack: cons shows no session")
	}
	return ids, nil
}

// wrongPasswords attaches to the lock users' sessions. They must not notice, and the member must
// not log each attempt.
func wrongPasswords(ctx context.Context, p *Play) error {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	ids, err := p.sessionIDs(patient)
	if err != nil {
		return err
	}
	before, err := os.Stat(p.attacked.LogPath())
	if err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	err = each(10, func(i int) error {
		return rounds(ctx, func() error {
			for n := range 20 {
				nc, err := p.dial(p.attacked.ClientAddr, p.host(i))
				if err != nil {
					p.saw(closed)
					continue
				}
				_ = nc.SetDeadline(time.Now().Add(patience))
				guess := make([]byte, wire.PasswordLen)
				_, _ = rand.Read(guess) // never fails
				id := ids[n%len(ids)]
				answer, err := zkconn.New(nc).Handshake(wire.ConnectRequest{SessionID: id, TimeoutMs: sessionTimeoutMs, Password: guess})
				switch {
				case err == nil && answer.SessionID == id:
					err = &harm{fmt.Sprintf("session %#x is taken with a guess", uint64(id)), nil}
				case errors.Is(err, zkconn.ErrRefused):
					p.saw(refused)
					err = nil
				default:
					p.saw(closed)
					err = nil
				}
				if err = errors.Join(err, nc.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	})
	after, statErr := os.Stat(p.attacked.LogPath())
	if err == nil && statErr == nil && after.Size()-before.Size() > logBytes {
		return &harm{fmt.Sprintf("%s has logged %d KB", p.attacked, (after.Size()-before.Size())>>10), nil}
	}
	return errors.Join(err, statErr)
}

// watchedEphemerals ends sessions with nodes below a node that many connections watch.
func watchedEphemerals(ctx context.Context, p *Play) error {
	const watchers, ephemerals = 100, 2000
	parent := p.path("watched")
	maker, err := p.connectFrom(p.host(20))
	if err != nil {
		return err
	}
	defer maker.leave()
	if err := maker.make(parent, nil); err != nil {
		return err
	}
	for i := range watchers {
		c, err := p.connectFrom(p.host(i / (allowed - 10)))
		if err != nil {
			return fmt.Errorf("watcher %d: %w", i+1, err)
		}
		defer c.Close()
		go func() { _, _ = io.Copy(io.Discard, c.Conn.Conn) }() // it ends with the connection
		watch := wire.AddWatchRequest{Path: parent, Mode: wire.AddWatchPersistentRecursive}
		if err := c.post(wire.OpAddWatch, watch); err != nil {
			return fmt.Errorf("recursive watch: %w", err)
		}
	}
	round := 0
	return rounds(ctx, func() error {
		c, err := p.connectFrom(p.host(21))
		if err != nil {
			return err
		}
		defer c.Close()
		round++
		for from := 0; from < ephemerals; from += 1000 {
			path := func(i int) string { return fmt.Sprint(parent, "/", round, "-", from+i) }
			if err := c.multi(creates(1000, path, wire.ModeEphemeral)); err != nil {
				return fmt.Errorf("ephemeral nodes: %w", err)
			}
		}
		p.saw(outcome(c.do(wire.OpCloseSession, nil)))
		return nil
	})
}

// httpStreams opens streams that it does not read, and asks /live from the same addresses.
func httpStreams(ctx context.Context, p *Play) error {
	const addresses, streams = 4, 12
	conns := p.openMany(addresses*streams, func(i int) (net.Conn, error) {
		c, err := p.dial(p.attacked.HTTPAddr, p.host(i%addresses))
		if err == nil {
			_, _ = io.WriteString(c, "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		}
		return c, err
	})
	var took []time.Duration
	for len(took) < 20 || ctx.Err() == nil {
		began := time.Now()
		statuses, err := p.sees(p.attacked.HTTPAddr, len(took)%addresses, "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
		if err == nil && !slices.Equal(statuses, []string{"200"}) {
			err = &harm{fmt.Sprintf("/live beside streams is answered %v", statuses), nil}
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	p.hold(ctx, conns)
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; p99 > fencePatience {
		return &harm{fmt.Sprintf("/live took %d ms (p99 of %d)", p99.Milliseconds(), len(took)), nil}
	}
	return nil
}
