package attack

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"time"

	"lockkeeper/wire"
)

// allowed is the number of connections that one address may have: the default of maxClientCnxns.
const allowed = 60

// buffers are attacks that fill the member's buffers.
func buffers() []Attack {
	return []Attack{
		{
			Name: "readers", Port: ClientPort,
			Sends: "60 connections that ask for a node of 1 MB 100 times each and read nothing",
			May:   []string{held, closed}, Least: allowed, LeastBytes: allowed * 100 * 20,
			play: readers,
		},
		{
			Name: "watchers", Port: ClientPort,
			Sends: "60 watchers that read nothing of events with paths of 500 kB",
			May:   []string{held, closed, ok, "BadArguments"}, Least: allowed, LeastBytes: 2_000_000,
			play: watchers,
		},
		{
			Name: "writers", Port: ClientPort,
			Sends: "writes of 1 kB, as fast as they are taken, over ten connections that read nothing",
			May:   []string{held, closed}, Least: 10, LeastBytes: 1_000_000,
			play: writers,
		},
		{
			Name: "announced-frames", Port: ClientPort,
			Sends: "frames of 1 MB that are announced and never sent, over 600 connections",
			May:   []string{held, closed, refused}, Least: 600, LeastBytes: 600,
			play: announcedFrames,
		},
		{
			Name: "directories", Port: ClientPort, Disk: true,
			Sends: "a directory of 100,000 nodes, listed again and again over ten connections",
			May:   []string{ok, closed, "BadArguments"}, Least: 10, LeastBytes: 5_000_000,
			play: directories,
		},
		{
			Name: "ephemerals", Port: ClientPort,
			Sends: "sessions with 5,000 ephemeral nodes each, closed at once",
			May:   []string{ok, closed, "BadArguments"}, Least: 1, LeastBytes: 200_000,
			play: ephemerals,
		},
		{
			Name: "watches", Port: ClientPort,
			Sends: "600 watches of paths of 500 kB that nobody has, over ten connections, and then more over one",
			May:   []string{"NoNode", closed, "BadArguments"}, Least: allowed, LeastBytes: 20_000_000,
			play: watches,
		},
		{
			Name: "state", Port: ClientPort, Disk: true, Settings: []string{"maxDataBytes=100000000"},
			Sends: "nodes of 1 MB and of no data, as many as are taken (here 100 MB), over four connections",
			May:   []string{ok, closed, "BadArguments"}, Least: 40, LeastBytes: 40_000_000,
			play: fillState,
		},
	}
}

// openSessions opens n sessions from one address.
func (p *Play) openSessions(n int) ([]*client, []net.Conn, error) {
	var clients []*client
	var conns []net.Conn
	for range n {
		c, err := p.connect()
		if err != nil {
			return nil, nil, fmt.Errorf("connection %d: %w", len(conns)+1, err)
		}
		clients, conns = append(clients, c), append(conns, c)
	}
	return clients, conns, nil
}

func readers(ctx context.Context, p *Play) error {
	path, err := p.bigNode()
	if err != nil {
		return err
	}
	clients, conns, err := p.openSessions(allowed)
	if err != nil {
		return err
	}
	for _, c := range clients {
		for range 100 {
			if c.post(wire.OpGetData, wire.PathWatchRequest{Path: path}) != nil {
				break // the member reads no more of it, or has closed it
			}
		}
	}
	p.hold(ctx, conns)
	return nil
}

func watchers(ctx context.Context, p *Play) error {
	clients, conns, err := p.openSessions(allowed - 1)
	if err != nil {
		return err
	}
	for _, c := range clients {
		watch := wire.AddWatchRequest{Path: "/", Mode: wire.AddWatchPersistentRecursive}
		if err := c.do(wire.OpAddWatch, watch); err != nil {
			return fmt.Errorf("recursive watch: %w", err)
		}
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	path := p.path(strings.Repeat("w", 500_000))
	err = rounds(ctx, func() error {
		for _, r := range []struct {
			op   wire.Op
			body wire.Record
		}{
			{wire.OpCreate, wire.CreateRequest{Path: path, ACL: wire.OpenACL}},
			{wire.OpSetData, wire.SetDataRequest{Path: path, Version: -1}},
			{wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1}},
		} {
			err := c.do(r.op, r.body)
			p.saw(outcome(err))
			if endOnly(err) != nil {
				return nil
			}
		}
		return nil
	})
	_ = c.Close()
	p.hold(ctx, conns)
	return err
}

func writers(ctx context.Context, p *Play) error {
	data := make([]byte, 1000)
	return p.clients(10, func(i int, c *client) error {
		path := p.path(fmt.Sprint("writer", i))
		if err := c.make(path, nil); err != nil {
			return err
		}
		for ctx.Err() == nil {
			// A member that reads no more keeps the writer waiting, as it should.
			set := wire.SetDataRequest{Path: path, Data: data, Version: -1}
			if c.postWithin(time.Second, wire.OpSetData, set) != nil {
				break
			}
		}
		p.hold(ctx, []net.Conn{c})
		return nil
	})
}

func announcedFrames(ctx context.Context, p *Play) error {
	p.hold(ctx, p.openMany(600, func(i int) (net.Conn, error) {
		c, err := p.connectFrom(p.host(i / (allowed - 5)))
		if err == nil {
			_, _ = c.Write(binary.BigEndian.AppendUint32(nil, wire.DefaultMaxBuffer))
			_, _ = c.Write(make([]byte, 16))
		}
		return c, err
	}))
	return nil
}

func directories(ctx context.Context, p *Play) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.leave()
	directory := p.path("directory")
	if err := c.make(directory, nil); err != nil {
		return err
	}
	const batch = 2000
	for from := 0; from < 100_000; from += batch {
		path := func(i int) string { return fmt.Sprintf("%s/%d", directory, from+i) }
		if err := c.multi(creates(batch, path, wire.ModePersistent)); err != nil {
			return fmt.Errorf("a directory with %d nodes: %w", from+batch, err)
		}
	}
	return p.clients(10, func(_ int, c *client) error {
		return rounds(ctx, func() error {
			err := c.do(wire.OpGetChildren, wire.PathWatchRequest{Path: directory})
			p.saw(outcome(err))
			return endOnly(err)
		})
	})
}

func ephemerals(ctx context.Context, p *Play) error {
	round := 0
	return p.fresh(ctx, 1, func(c *client) error {
		round++
		for from := 0; from < 5000; from += 1000 {
			path := func(i int) string { return p.path(fmt.Sprint("ephemeral", round, "-", from+i)) }
			if err := c.multi(creates(1000, path, wire.ModeEphemeral)); err != nil {
				return fmt.Errorf("ephemeral nodes: %w", err)
			}
		}
		p.saw(outcome(c.do(wire.OpCloseSession, nil)))
		return nil
	})
}

// watches sets as many watches as are taken. Then one connection goes on trying, and the others
// keep theirs.
func watches(ctx context.Context, p *Play) error {
	long := strings.Repeat("w", 500_000)
	return p.clients(10, func(i int, c *client) error {
		round := 0
		return rounds(ctx, func() error {
			for n := range 60 {
				path := fmt.Sprintf("/%d-%d-%d%s", i, round, n, long)
				if p.asks(c, wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true}) != nil {
					return nil // the outcomes tell
				}
			}
			if round++; i > 0 {
				<-ctx.Done()
			}
			return nil
		})
	})
}

// fillState makes nodes until no more are taken, goes on trying, and deletes them in the end, so
// that others can make some again.
func fillState(ctx context.Context, p *Play) error {
	const big, most, batch = 1_000_000, 40, 1000
	return p.clients(4, func(i int, c *client) error {
		path := func(kind string, n int) string { return p.path(fmt.Sprint(kind, i, "-", n)) }
		large, batches := 0, 0
		small := func(batch, n int) string { return path("small", batch*1000+n) }
		err := rounds(ctx, func() error {
			var err error
			for ; large < most && err == nil; large++ {
				err = c.do(wire.OpCreate, wire.CreateRequest{Path: path("large", large), Data: make([]byte, big), ACL: wire.OpenACL})
				p.saw(outcome(err))
				if err != nil {
					break
				}
			}
			if endOnly(err) != nil {
				return err
			}
			err = c.multi(creates(batch, func(n int) string { return small(batches, n) }, wire.ModePersistent))
			p.saw(outcome(err))
			if err == nil {
				batches++
			}
			return endOnly(err)
		})
		if err != nil {
			return err
		}
		for n := range large {
			if err := c.do(wire.OpDelete, wire.DeleteRequest{Path: path("large", n), Version: -1}); err != nil {
				return fmt.Errorf("delete in a full state: %w", err)
			}
		}
		for b := range batches {
			var ops []wire.MultiOp
			for n := range batch {
				ops = append(ops, wire.MultiOp{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: small(b, n), Version: -1}})
			}
			if err := c.multi(ops); err != nil {
				return fmt.Errorf("deletes in a full state: %w", err)
			}
		}
		return nil
	})
}

// creates are n creates for a multi.
func creates(n int, path func(i int) string, mode wire.CreateMode) []wire.MultiOp {
	var ops []wire.MultiOp
	for i := range n {
		ops = append(ops, wire.MultiOp{Op: wire.OpCreate,
			Record: &wire.CreateRequest{Path: path(i), ACL: wire.OpenACL, Mode: mode}})
	}
	return ops
}
