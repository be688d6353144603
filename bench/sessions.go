package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/wire"
)

const (
	// silentSessions is the number of sessions that fall silent, to see them expire; at most one
	// for each client.
	silentSessions = 20
	// silentTimeout is the timeout that these request; a server may give them more.
	silentTimeout = 4 * time.Second
	// settling is the time for servers to settle their memory before it is measured.
	settling = 5 * time.Second
)

// sessions opens idle sessions. An operation is the opening of one; then it measures their cost and
// how late one that falls silent expires: the time from its timeout, counted from the last byte
// that it sent, until another client has the event that its node is gone.
func sessions(ctx context.Context, r *run) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	before, _, known := r.usage()
	r.enter("measure")
	mark := r.startUsage()
	open, leave, err := r.dialAll(ctx, r.opened)
	defer leave()
	r.addUsage(mark)
	if err != nil {
		return err
	}
	r.enter("idle")
	idle, stop := context.WithCancel(ctx)
	defer stop()
	alive := make(chan error, 1)
	go func() { alive <- r.keepAlive(idle, open) }()
	err = r.settle(ctx)
	after, _, still := r.usage()
	mark = r.startUsage()
	var late Histogram
	if err == nil {
		late, err = r.expire(ctx)
	}
	idleCPU, _, _ := r.usage()
	stop()
	if err := errors.Join(err, <-alive); err != nil {
		return err
	}
	if known && still {
		clients := float64(r.Clients)
		r.figures["resident bytes per session"] = float64(after.Resident-before.Resident) / clients
		r.figures["idle CPU per session and second us"] =
			float64((idleCPU.CPU - mark.servers).Microseconds()) / clients / time.Since(mark.at).Seconds()
	}
	r.figures["expiry late p50 ms"], r.figures["expiry late max ms"] = ms(late.Quantile(0.5)), ms(late.Max())
	return nil
}

// settle lets the servers return memory before it is measured.
func (r *run) settle(ctx context.Context) error {
	if r.Settle != nil {
		return r.Settle(ctx)
	}
	pause(ctx, settling)
	return ctx.Err()
}

// keepAlive pings all sessions as client libraries do, each time that a third of their timeout has
// passed, until ctx ends.
func (r *run) keepAlive(ctx context.Context, open []*conn) error {
	for {
		pause(ctx, open[0].timeout/3)
		if ctx.Err() != nil {
			return nil
		}
		for _, c := range open {
			_ = c.SetDeadline(time.Now().Add(patience))
			c.put(wire.OpPing, nil)
			if err := c.flush(); err != nil {
				return fmt.Errorf("an idle session's connection: %w", err)
			}
		}
		for _, c := range open {
			for first := true; first || c.R.Buffered() > 0; first = false {
				if _, _, err := c.read(); err != nil {
					return fmt.Errorf("an idle session's connection: %w", err)
				}
			}
		}
	}
}

// expire lets some sessions fall silent, one after the other, and measures how late they expire.
func (r *run) expire(ctx context.Context) (late Histogram, err error) {
	r.enter("expire")
	watcher, err := r.dial(ctx, 0)
	if err != nil {
		return late, err
	}
	defer watcher.end()
	due := map[string]time.Time{}
	for n := range min(silentSessions, r.Clients) {
		c, err := dial(ctx, r.route(), r.server(n), silentTimeout, patience)
		if err != nil {
			return late, err
		}
		defer c.Close()
		sent := time.Now()
		path, err := c.create(fmt.Sprintf("%s/silent%d", r.dir, n), wire.ModeEphemeral)
		if err != nil {
			return late, err
		}
		due[path] = sent.Add(c.timeout)
		if err := watcher.watchNew(ctx, path); err != nil {
			return late, err
		}
		// so that they do not fall on one moment of the servers' tick
		pause(ctx, 173*time.Millisecond)
	}
	for range due {
		e, err := watcher.event(ctx)
		if err != nil {
			return late, err
		}
		late.Add(time.Since(due[e.Path]))
	}
	return late, nil
}

// watchNew sets a watch on a node that another connection has just made. It tries again on NoNode,
// which ZooKeeper 3.8 may answer, though rarely, even behind a sync.
func (c *conn) watchNew(ctx context.Context, path string) error {
	for start := time.Now(); ; pause(ctx, time.Millisecond) {
		if _, err := c.call(wire.OpSync, &wire.SyncRequest{Path: path}); err != nil {
			return err
		}
		// without a node, it sets no watch
		_, err := c.call(wire.OpGetData, &wire.PathWatchRequest{Path: path, Watch: true})
		if !errors.Is(err, wire.CodeNoNode) || ctx.Err() != nil || time.Since(start) > patience {
			return err
		}
	}
}
