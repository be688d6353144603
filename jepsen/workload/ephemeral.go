package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

const ephemeralName = "ephemeral"

const (
	ephemeralRoot = "/ephemeral"
	// ephemeralLive is where all sessions have nodes: who lists it sees all or none of a session's.
	ephemeralLive = ephemeralRoot + "/live"
	ephemeralEach = 3
)

// The operations of the ephemeral workload, beside fCreate.
const (
	fSession  = "session"  // a session begins: Session, and its timeout in ms as Value
	fAlive    = "alive"    // the owner looks for Path, one of its nodes: its sign of life
	fAbandon  = "abandon"  // the owner will not be heard of again
	fSnapshot = "snapshot" // behind a sync, the names in ephemeralLive as Value
	// fGone: the owner's two directories are empty after Session. Zxid is the last change of the
	// first one, Value the second one's.
	fGone = "gone"
)

// newEphemeral is promise C7: sessions with several ephemeral nodes, which end in every way that
// there is, and others that look on. A client is an owner and an observer.
func newEphemeral() Workload {
	return Workload{name: ephemeralName, check: checkEphemeral, final: finishEphemeral,
		run: func(ctx context.Context, env *Env, n int) error {
			owner := &ephemeralOwner{worker: newWorker(env, ephemeralName, n)}
			observer := owner.twin()
			var looking sync.WaitGroup
			looking.Go(func() { observer.observe(ctx) })
			defer looking.Wait()
			for k := 0; ctx.Err() == nil; k++ {
				owner.life(ctx, k)
				owner.think(ctx)
			}
			owner.drop()
			return nil
		}}
}

// finishEphemeral waits until the last session has expired, and then records the remaining nodes.
func finishEphemeral(ctx context.Context, env *Env) error {
	w := newWorker(env, ephemeralName, env.Clients)
	for deadline := time.Now().Add(4*env.SessionTimeout + 10*time.Second); time.Now().Before(deadline); {
		if l, err := w.open(ctx, w.member(), session{}); err == nil {
			names, err := w.snapshot(ctx, l)
			if err == nil {
				l.leave(ignore)
			} else {
				l.lost(err)
			}
			if err == nil && len(names) == 0 {
				break
			}
		}
		if !jepsen.Sleep(ctx, env.SessionTimeout/8) {
			break
		}
	}
	return w.tellTree(ctx, ephemeralRoot)
}

// ignore is for frames of which nothing has to be recorded.
func ignore(frame) {}

// observe takes snapshots until ctx ends.
func (w *worker) observe(ctx context.Context) {
	for w.think(ctx) {
		l, err := w.open(ctx, w.member(), session{})
		if err != nil {
			continue
		}
		for err == nil {
			if _, err = w.snapshot(ctx, l); err == nil {
				err = l.idle(ctx, 4*w.thinking(), ignore)
			}
		}
		l.finish(ctx, err, ignore)
	}
}

// snapshot lists ephemeralLive behind a sync.
func (w *worker) snapshot(ctx context.Context, l *link) (names []string, err error) {
	op := w.invoke(jepsen.Op{F: fSnapshot, Path: ephemeralLive})
	b := l.add(nil, wire.OpSync, wire.SyncRequest{Path: ephemeralLive}, jepsen.Op{})
	b = l.add(b, wire.OpGetChildren, wire.PathWatchRequest{Path: ephemeralLive}, op)
	if err := l.send(b); err != nil {
		return nil, err
	}
	err = l.drain(ctx, func(f frame) {
		if f.request == nil || f.request.op.ID == 0 {
			return
		}
		answer, err := wire.DecodeResponse(wire.OpGetChildren, f.body)
		if f.header.Err != wire.CodeOK || err != nil {
			w.end(op, jepsen.Fail, f.header.Err.Error())
			return
		}
		names = answer.(*wire.GetChildrenResponse).Children
		slices.Sort(names)
		op.Value, op.Zxid = strings.Join(names, " "), int64(f.header.Zxid)
		w.end(op, jepsen.OK, "")
	})
	return names, err
}

type ephemeralOwner struct {
	*worker
	l *link
	// deserted is a connection that is left open in silence.
	deserted *link
	nodes    []string
	before   string // the session before, if all its nodes were there
}

// drop closes the connection that was left open.
func (o *ephemeralOwner) drop() {
	if o.deserted != nil {
		o.deserted.shut()
		o.deserted = nil
	}
}

// life is one session.
func (o *ephemeralOwner) life(ctx context.Context, k int) {
	l, err := o.open(ctx, o.member(), session{})
	if err != nil {
		return
	}
	o.l = l
	o.add(jepsen.Op{Kind: jepsen.Info, F: fSession, Session: l.session.text(),
		Value: fmt.Sprint(l.session.timeout.Milliseconds())})
	if err = o.vacant(ctx); err == nil {
		err = o.settle(ctx, k)
	}
	if err == nil {
		o.before = l.session.text()
		err = o.live(ctx)
	}
	switch {
	case err == nil:
		o.depart()
	case ctx.Err() != nil && !errors.Is(err, errOrder) && o.l != nil:
		o.l.leave(ignore)
	case o.l != nil:
		o.abandon()
		o.l.lost(err)
	}
}

// abandon says that the session will not be heard of again.
func (o *ephemeralOwner) abandon() {
	o.add(jepsen.Op{Kind: jepsen.Info, F: fAbandon, Session: o.l.session.text()})
}

// depart ends the session: by its close, with its connection, or in silence.
func (o *ephemeralOwner) depart() {
	o.drop()
	switch o.rng.IntN(3) {
	case 0:
		o.l.leave(ignore)
	case 1:
		o.abandon()
		o.l.lost(errMoved)
	case 2:
		o.abandon()
		o.deserted = o.l
	}
}

// dirs are the directories in which only this client has nodes, one each.
func (o *ephemeralOwner) dirs() [2]string {
	return [2]string{ephemeralRoot + "/" + o.name + "-a", ephemeralRoot + "/" + o.name + "-b"}
}

// vacant makes the directories, and waits until nothing of the session before is in them.
func (o *ephemeralOwner) vacant(ctx context.Context) error {
	dirs := o.dirs()
	err := o.l.each(ctx, []string{ephemeralRoot, ephemeralLive, dirs[0], dirs[1]}, wire.OpCreate, makes, nil)
	for err == nil {
		op := o.invoke(jepsen.Op{F: fGone, Session: o.before})
		var stats []wire.Stat
		if err = o.l.each(ctx, []string{ephemeralRoot}, wire.OpSync, syncs, nil); err == nil {
			err = o.l.each(ctx, dirs[:], wire.OpGetChildren2, reads, func(_ string, answer wire.Record) {
				stats = append(stats, answer.(*wire.GetChildren2Response).Stat)
			})
		}
		if err != nil {
			return err
		}
		if len(stats) == 2 && stats[0].NumChildren+stats[1].NumChildren == 0 {
			op.Zxid, op.Value = int64(stats[0].Pzxid), fmt.Sprintf("%#x", int64(stats[1].Pzxid))
			o.end(op, jepsen.OK, "")
			o.before = ""
			return nil
		}
		o.end(op, jepsen.Fail, "not yet")
		err = o.l.idle(ctx, o.l.session.timeout/20, ignore)
	}
	return err
}

// settle creates the session's nodes.
func (o *ephemeralOwner) settle(ctx context.Context, k int) error {
	o.nodes = nil
	for _, dir := range o.dirs() {
		o.nodes = append(o.nodes, fmt.Sprintf("%s/%d", dir, k))
	}
	for i := range ephemeralEach {
		o.nodes = append(o.nodes, fmt.Sprintf("%s/%s.%d.%d", ephemeralLive, o.name, k, i))
	}
	var b []byte
	for _, path := range o.nodes {
		op := o.invoke(jepsen.Op{F: fCreate, Path: path, Session: o.l.session.text()})
		b = o.l.add(b, wire.OpCreate, wire.CreateRequest{Path: path, ACL: wire.OpenACL, Mode: wire.ModeEphemeral}, op)
	}
	if err := o.l.send(b); err != nil {
		return err
	}
	refused := false
	err := o.l.drain(ctx, func(f frame) {
		o.see(f)
		refused = refused || f.header.Err != wire.CodeOK
	})
	if err == nil && refused {
		err = errors.New("workload: the session's nodes could not be made")
	}
	return err
}

// live shows signs of life for a while, also over other connections. Without an
// error the connection is open at the end.
func (o *ephemeralOwner) live(ctx context.Context) error {
	timeout := o.l.session.timeout
	until := time.Now().Add(timeout/10 + time.Duration(o.rng.Int64N(int64(timeout)*3/2)))
	for time.Now().Before(until) {
		path := o.nodes[o.rng.IntN(len(o.nodes))]
		op := o.invoke(jepsen.Op{F: fAlive, Path: path, Session: o.l.session.text()})
		err := o.l.send(o.l.add(nil, wire.OpExists, wire.PathWatchRequest{Path: path}, op))
		if err == nil {
			err = o.l.drain(ctx, o.see)
		}
		if err == nil && o.rng.IntN(20) == 0 {
			err = errMoved
		}
		if err == nil {
			err = o.l.idle(ctx, time.Duration(o.rng.Int64N(int64(timeout)/8+1)), o.see)
		}
		if err != nil {
			if err := o.resume(ctx, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// resume takes the session to another connection, after err. When it has expired
// there is no connection any more.
func (o *ephemeralOwner) resume(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errOrder) {
		return err
	}
	s := o.l.session
	o.l.lost(err)
	o.l = nil
	for o.think(ctx) {
		l, err := o.open(ctx, o.member(), s)
		if err == nil {
			o.l = l
			return nil
		}
		if errors.Is(err, errExpired) {
			return err
		}
	}
	o.add(jepsen.Op{Kind: jepsen.Info, F: fAbandon, Session: s.text()})
	return ctx.Err()
}

func (o *ephemeralOwner) see(f frame) { o.answered(f) }
