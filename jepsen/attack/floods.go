package attack

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"lockkeeper/wire"
)

// floods are attacks by number.
func floods() []Attack {
	return []Attack{
		{
			Name: "connections", Port: ClientPort,
			Sends: "connections as fast as they come about, from 20 addresses, which are closed at once",
			May:   []string{ok, refused, closed}, Least: 500,
			play: connections,
		},
		{
			Name: "half-handshakes", Port: ClientPort,
			Sends: "1,200 connections from 20 addresses, with half of a handshake or the announcement of one of 1 MB",
			May:   []string{held, closed, refused}, Least: 1200, LeastBytes: 20_000,
			play: halfHandshakes,
		},
		{
			Name: "four-letter-words", Port: ClientPort,
			Sends: "dump, cons, wchp, mntr and stat, each by one after the other",
			May:   []string{ok, refused, closed}, Least: 100, LeastBytes: 400,
			play: fourLetterWords,
		},
		{
			Name: "sessions", Port: ClientPort,
			Sends: "new sessions as fast as they are given, over 8 connections at a time, none of them closed",
			May:   []string{ok, refused, closed}, Least: 100,
			play: sessions,
		},
		{
			Name: "large-writes", Port: ClientPort, Disk: true,
			Sends: "writes of 1 MB, one after the other, over two connections",
			May:   []string{ok, closed}, Least: 2, LeastBytes: 2_000_000,
			play: largeWrites,
		},
	}
}

func connections(ctx context.Context, p *Play) error {
	return each(20, func(i int) error {
		return rounds(ctx, func() error {
			c, err := p.dial(p.attacked.ClientAddr, p.host(i))
			if err != nil {
				p.saw(refused)
				return nil
			}
			p.saw(ok)
			return c.Close()
		})
	})
}

func halfHandshakes(ctx context.Context, p *Play) error {
	half := wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: sessionTimeoutMs,
		Password: make([]byte, wire.PasswordLen)})
	p.hold(ctx, p.openMany(1200, func(i int) (net.Conn, error) {
		c, err := p.dial(p.attacked.ClientAddr, p.host(i%20))
		switch {
		case err != nil:
		case i%3 == 0:
			_, _ = c.Write(binary.BigEndian.AppendUint32(nil, wire.DefaultMaxBuffer))
			_, _ = c.Write(make([]byte, 20))
		default:
			_, _ = c.Write(half[:len(half)/2])
		}
		return c, err
	}))
	return nil
}

func fourLetterWords(ctx context.Context, p *Play) error {
	words := []string{"dump", "cons", "wchp", "mntr", "stat"}
	return each(len(words), func(i int) error {
		return rounds(ctx, func() error {
			c, err := p.dial(p.attacked.ClientAddr, p.host(0))
			if err != nil {
				p.saw(refused)
				return nil
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(c, words[i])
			var n int64
			if err == nil {
				n, err = io.Copy(io.Discard, c)
			}
			if err == nil && n == 0 {
				err = io.EOF
			}
			p.saw(outcome(err))
			return nil
		})
	})
}

func sessions(ctx context.Context, p *Play) error {
	return each(8, func(i int) error {
		return rounds(ctx, func() error { return p.openOne(p.host(i)) })
	})
}

func largeWrites(ctx context.Context, p *Play) error {
	return p.clients(2, func(i int, c *client) error {
		path := p.path(fmt.Sprint("large", i))
		if err := c.make(path, nil); err != nil {
			return err
		}
		data := make([]byte, 1_000_000)
		return rounds(ctx, func() error {
			binary.BigEndian.PutUint64(data, uint64(time.Now().UnixNano()))
			err := c.do(wire.OpSetData, wire.SetDataRequest{Path: path, Data: data, Version: -1})
			p.saw(outcome(err))
			return endOnly(err)
		})
	})
}
