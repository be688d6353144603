package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/wire"
)

// keysPerClient is how many nodes each client of write, read and mixed uses.
const keysPerClient = 16

// pipelined is a client of write, read and mixed: it always has InFlight requests outstanding.
// readShare of 10 are reads.
func pipelined(readShare int) func(ctx context.Context, r *run) error {
	return func(ctx context.Context, r *run) error {
		if err := r.makeKeys(ctx); err != nil {
			return err
		}
		return r.measure(ctx, func(ctx context.Context, n int) error {
			p := &pipeline{run: r, n: n, readShare: readShare, rng: rand.New(rand.NewPCG(1, uint64(n))), data: make([]byte, r.Size)}
			for i := range p.data {
				p.data[i] = byte(p.rng.Uint32())
			}
			for i := range p.keys {
				p.keys[i] = r.key(n, i)
			}
			return r.again(ctx, n, p.work, &p.latency)
		})
	}
}

func (r *run) key(client, i int) string { return fmt.Sprintf("%s/c%d-%d", r.dir, client, i) }

// makeKeys makes the nodes of all clients.
func (r *run) makeKeys(ctx context.Context) error {
	c, err := r.dial(ctx, 0)
	if err != nil {
		return err
	}
	defer c.end()
	err = c.pipelineAll(ctx, r.Clients*keysPerClient, func(i int) (wire.Op, wire.Record) {
		return wire.OpCreate, &wire.CreateRequest{Path: r.key(i/keysPerClient, i%keysPerClient), Data: make([]byte, r.Size), ACL: wire.OpenACL}
	})
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	return r.syncAll(ctx)
}

// again has a client work on one connection after the other until ctx ends. What it has measured is
// merged in the end.
func (r *run) again(ctx context.Context, n int, work func(ctx context.Context, c *conn) error, h *Histogram) error {
	defer func() { r.recorder.merge(h) }()
	for tries := 0; ctx.Err() == nil; tries++ {
		dial := r.dialOnce
		if tries == 0 {
			dial = r.dial
		}
		c, err := dial(ctx, n+tries)
		if err != nil {
			if tries == 0 && ctx.Err() == nil {
				return err
			}
			r.recorder.fail(err)
			pause(ctx, 20*time.Millisecond)
			continue
		}
		cut := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
		err = work(ctx, c)
		cut()
		if ctx.Err() != nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			c.put(wire.OpCloseSession, nil)
			_ = c.flush()
		} else if err != nil {
			r.recorder.fail(err)
		}
		_ = c.Close()
	}
	return nil
}

// pipeline is one client of write, read or mixed.
type pipeline struct {
	run       *run
	n         int
	readShare int
	rng       *rand.Rand
	data      []byte
	keys      [keysPerClient]string
	sent      int
	starts    []time.Time // of what is outstanding, a ring
	latency   Histogram

	set wire.SetDataRequest
	get wire.PathWatchRequest
}

// work keeps requests outstanding until ctx ends or the connection breaks.
func (p *pipeline) work(ctx context.Context, c *conn) error {
	p.starts = make([]time.Time, p.run.InFlight)
	first, outstanding := 0, 0
	for ctx.Err() == nil {
		now := time.Now()
		for ; outstanding < p.run.InFlight; outstanding++ {
			p.put(c)
			p.starts[(first+outstanding)%len(p.starts)] = now
		}
		if err := c.flush(); err != nil {
			return err
		}
		for more := true; more; more = outstanding > 0 && c.whole() {
			h, _, err := c.next()
			if err != nil {
				return err
			}
			if h.Err != wire.CodeOK {
				return h.Err
			}
			if p.run.recorder.measuring.Load() {
				p.latency.Add(time.Since(p.starts[first]))
			}
			p.run.ops.Add(1)
			first = (first + 1) % len(p.starts)
			outstanding--
		}
	}
	return ctx.Err()
}

func (p *pipeline) put(c *conn) {
	p.sent++
	key := p.keys[p.sent%keysPerClient]
	if p.rng.IntN(10) < p.readShare {
		p.get = wire.PathWatchRequest{Path: key}
		c.put(wire.OpGetData, &p.get)
		return
	}
	p.set = wire.SetDataRequest{Path: key, Data: p.data, Version: -1}
	c.put(wire.OpSetData, &p.set)
}

// whole says whether another frame has come completely.
func (c *conn) whole() bool {
	const lengthBytes = 4
	if c.r.Buffered() < lengthBytes {
		return false
	}
	b, _ := c.r.Peek(lengthBytes)
	n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	return c.r.Buffered() >= lengthBytes+n
}

// pipelineWindow is how many requests pipelineAll has outstanding.
const pipelineWindow = 256

// pipelineAll sends n requests, many at a time, and waits for all replies; the first error ends it.
func (c *conn) pipelineAll(ctx context.Context, n int, request func(i int) (wire.Op, wire.Record)) error {
	for sent, answered := 0, 0; answered < n; {
		for ; sent < n && sent-answered < pipelineWindow; sent++ {
			c.put(request(sent))
		}
		if err := c.flush(); err != nil {
			return err
		}
		for more := true; more; more = answered < n && c.whole() {
			h, _, err := c.next()
			if err != nil {
				return err
			}
			if h.Err != wire.CodeOK {
				return h.Err
			}
			answered++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// removeAll deletes a node and everything below it.
func (c *conn) removeAll(path string) error {
	names, err := c.children(path)
	if err != nil {
		if errors.Is(err, wire.CodeNoNode) {
			return nil
		}
		return err
	}
	// Most have no children: only those that turn out to have some are looked into.
	var deep []string
	for sent, answered := 0, 0; answered < len(names); {
		for ; sent < len(names) && sent-answered < pipelineWindow; sent++ {
			c.put(wire.OpDelete, &wire.DeleteRequest{Path: path + "/" + names[sent], Version: -1})
		}
		if err := c.flush(); err != nil {
			return err
		}
		h, _, err := c.next()
		if err != nil {
			return err
		}
		if h.Err == wire.CodeNotEmpty {
			deep = append(deep, path+"/"+names[answered])
		}
		answered++
	}
	for _, d := range deep {
		if err := c.removeAll(d); err != nil {
			return err
		}
	}
	return c.remove(path)
}
