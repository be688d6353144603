package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/wire"
)

// keysPerClient is the number of nodes of each client of write, read, mixed and failover.
const keysPerClient = 16

func (r *run) key(client, i int) string { return fmt.Sprintf("%s/c%d-%d", r.dir, client, i) }

// makeKeys makes the nodes of all clients.
func (r *run) makeKeys(ctx context.Context) error {
	key := func(i int) string { return r.key(i/keysPerClient, i%keysPerClient) }
	return r.makeNodes(ctx, r.Clients*keysPerClient, key, make([]byte, r.Size))
}

// pipelined are write, read and mixed. readShare of 10 requests are reads.
func pipelined(readShare int) func(ctx context.Context, r *run) error {
	return func(ctx context.Context, r *run) error {
		if err := r.makeKeys(ctx); err != nil {
			return err
		}
		client := func(n int) *pipeline {
			p := &pipeline{inFlight: r.InFlight, readShare: readShare, rng: rand.New(rand.NewPCG(1, uint64(n))),
				data: make([]byte, r.Size)}
			for i := range p.data {
				p.data[i] = byte(p.rng.Uint32())
			}
			for i := range p.keys {
				p.keys[i] = r.key(n, i)
			}
			return p
		}
		if r.open != nil {
			return r.paced(ctx, client)
		}
		return r.clients(ctx, func(n int) work { return client(n).work })
	}
}

// pipeline is one client of write, read or mixed.
type pipeline struct {
	inFlight  int
	readShare int
	rng       *rand.Rand
	data      []byte
	keys      [keysPerClient]string
	sent      int

	set wire.SetDataRequest
	get wire.PathWatchRequest
}

// work always has inFlight requests outstanding, until ctx ends or the connection breaks.
func (p *pipeline) work(ctx context.Context, c *conn, done func(time.Duration)) error {
	starts := make([]time.Time, p.inFlight) // of the requests in flight, a ring
	first, outstanding := 0, 0
	for ctx.Err() == nil {
		now := time.Now()
		for ; outstanding < p.inFlight; outstanding++ {
			p.put(c)
			starts[(first+outstanding)%len(starts)] = now
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
			done(time.Since(starts[first]))
			first = (first + 1) % len(starts)
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
