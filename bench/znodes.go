package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	defaultNodes = 200_000
	// nodesPerDir is the number of nodes below one.
	nodesPerDir = 1000
)

// znodes makes many nodes. An operation is the making of one; then it measures their cost and, with
// Config.Start, how long the first server takes to serve again after kill -9.
func znodes(ctx context.Context, r *run) error {
	r.Nodes = cmp.Or(r.Nodes, defaultNodes)
	dirs := (r.Nodes + nodesPerDir - 1) / nodesPerDir
	if err := r.makeDirs(ctx, "d", dirs); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	before, _, known := r.usage()
	r.enter("measure")
	mark := r.startUsage()
	if err := r.each(r.Clients, func(n int) error { return r.fill(ctx, n, dirs) }); err != nil {
		return err
	}
	r.addUsage(mark)
	if err := r.syncAll(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if after, _, still := r.usage(); known && still {
		grown := float64(after.Resident - before.Resident)
		r.figures["resident bytes per node and server"] = grown / float64(r.Nodes) / float64(len(r.Servers))
	}
	if len(r.Start) == 0 {
		return nil
	}
	r.enter("restart")
	if r.PIDs[0] == 0 {
		return errors.New("restart: the first server's process is not known")
	}
	took, err := r.restart(ctx)
	r.figures["restart ms"] = ms(took)
	return err
}

// fill makes the nodes of those directories that are this client's.
func (r *run) fill(ctx context.Context, n, dirs int) error {
	c, err := r.dial(ctx, n)
	if err != nil {
		return err
	}
	defer c.end()
	data := make([]byte, r.Size)
	var h Histogram
	for d := n; d < dirs; d += r.Clients {
		began := time.Now()
		many := min(nodesPerDir, r.Nodes-d*nodesPerDir)
		path := func(i int) string { return fmt.Sprintf("%s/d%d/node-%06d", r.dir, d, i) }
		if err := c.createAll(ctx, many, path, data); err != nil {
			return err
		}
		r.ops.Add(int64(many))
		each := time.Since(began) / time.Duration(many)
		for range many {
			h.Add(each)
		}
	}
	r.merge(&h)
	return nil
}
