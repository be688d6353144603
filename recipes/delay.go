package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// MaxLockDelay is the longest LockDelay, as in Chubby and Consul: a mistake in one
// program shall not keep a lock from all others for long.
const MaxLockDelay = time.Minute

// delay is what a place knows of the note that a holder with a LockDelay leaves
// beside the path.
//
// Invariant: while a holder's node is there, so is its note, and the note goes in
// the transaction that deletes the node in an orderly way. So who is at the front
// and finds a note with the name of another knows that the other has vanished. All
// changes of the note are made by a place at the front, in a transaction that
// checks that its own node is still there.
type delay struct {
	time  time.Duration
	path  string    // of the note
	ours  bool      // the note is about our node
	doubt bool      // it may be: we do not know what came of a request
	seen  time.Time // when we first knew that the loss had been noticed
}

// holderNote is the note's content.
type holderNote struct {
	Info
	Node    string `json:"node"`    // the holder's, full path
	DelayMs int64  `json:"delayMs"` // what the holder wants
	// Vanished: a contender has noticed that the node is gone. The note's mtime is
	// when that was.
	Vanished bool `json:"vanished,omitempty"`
}

const delayName = "_lockdelay_"

func (p *place) setDelay(d time.Duration) error {
	switch {
	case d < 0 || d > MaxLockDelay:
		return fmt.Errorf("lock delay %v: not between 0 and %v", d, MaxLockDelay)
	case d > 0:
		dir, name := split(p.dir)
		p.delay = &delay{time: d, path: dir + "/" + delayName + name}
	}
	return nil
}

// sitOut is called at the front of the queue. It waits until the delay of a
// holder that has vanished is over, and leaves our own note.
func (p *place) sitOut(ctx context.Context, wait bool) error {
	p.want(false) // it may take long
	// Most often there is no note: try that first.
	done, err := p.createNote()
	for attempt := 1; !done; {
		switch {
		case err == nil:
			attempt = 1
		case fateOf(err) == fateUnknown:
			if err := p.s.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
		default:
			return err
		}
		if err := p.over(); err != nil {
			return err
		}
		done, err = p.heedNote(ctx, wait)
	}
	return nil
}

// heedNote looks at the note and does what is to be done next. Without an error,
// and not done, one has to look again.
func (p *place) heedNote(ctx context.Context, wait bool) (done bool, err error) {
	n, stat, err := p.readNote()
	switch {
	case err != nil:
		return false, err
	case n == nil:
		return p.createNote()
	case n.Node == p.node:
		p.delay.ours = true
		return true, nil
	case !n.Vanished:
		p.delay.seen = time.Time{}
		n.Vanished = true
		_, err := p.changeNote(&zk.SetDataRequest{Path: p.delay.path, Data: n.encode(), Version: stat.Version})
		return false, err
	}
	if left := p.delayLeft(n, stat); left > 0 {
		if !wait {
			return false, ErrDelayed
		}
		return false, p.idle(ctx, left)
	}
	if p.kind == KindRead {
		return p.changeNote(&zk.DeleteRequest{Path: p.delay.path, Version: stat.Version})
	}
	return p.takeNote(&zk.SetDataRequest{Path: p.delay.path, Data: p.note().encode(), Version: stat.Version})
}

// delayLeft is how long the lock has to be kept from us yet.
//
// Two times of the cluster's clock are compared only where they are of writes
// that it has put in this order, and our clock does the rest.
func (p *place) delayLeft(n *holderNote, stat *zk.Stat) time.Duration {
	d := p.delay
	if d.seen.IsZero() {
		d.seen = time.Now()
	}
	gone := time.Since(d.seen)
	if stat.Mzxid < p.token { // we came after it had been noticed
		gone = max(gone, time.Duration(p.ctime-stat.Mtime)*time.Millisecond+time.Since(p.made))
	}
	return min(time.Duration(n.DelayMs)*time.Millisecond, MaxLockDelay) - gone
}

// idle waits at the front of the queue.
func (p *place) idle(ctx context.Context, d time.Duration) error {
	p.setDoing("waiting for the lock delay of a holder that has vanished")
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case ev := <-p.own:
			if err := p.ownEvent(ctx, ev); err != nil {
				return err
			}
		case <-p.lease.ended:
			return p.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// note is ours.
func (p *place) note() *holderNote {
	return &holderNote{Info: newInfo(""), Node: p.node, DelayMs: p.delay.time.Milliseconds()}
}

func (n *holderNote) encode() []byte {
	data, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return data
}

// createNote makes our note, if there is none of another. Readers leave none.
func (p *place) createNote() (done bool, err error) {
	if p.kind == KindRead {
		exists, _, err := p.s.conn.Exists(p.delay.path)
		return err == nil && !exists, err
	}
	return p.takeNote(&zk.CreateRequest{Path: p.delay.path, Data: p.note().encode(), Acl: p.acl, Flags: zk.FlagPersistent})
}

// takeNote makes a change that makes the note ours.
func (p *place) takeNote(op any) (done bool, err error) {
	done, err = p.changeNote(op)
	p.delay.ours = p.delay.ours || done
	p.delay.doubt = p.delay.doubt || fateOf(err) > fateRefused
	return done, err
}

// changeNote makes a change of the note, if our node is there and the note is
// what we take it for.
func (p *place) changeNote(op any) (done bool, err error) {
	results, err := p.s.conn.Multi(&zk.CheckVersionRequest{Path: p.node, Version: -1}, op)
	switch {
	case errors.Is(err, zk.ErrNoNode) && len(results) > 0 && results[0].Error != nil:
		return false, p.gone(zk.ErrNoNode)
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		return false, nil
	}
	return err == nil, err
}

// readNote reads the note; nil if there is none. It leaves no doubt.
func (p *place) readNote() (*holderNote, *zk.Stat, error) {
	if p.delay.doubt {
		if err := p.s.writeNothing(); err != nil {
			return nil, nil, err
		}
	}
	data, stat, err := p.s.conn.Get(p.delay.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, nil, err
	}
	p.delay.doubt = false
	if err != nil {
		return nil, nil, nil
	}
	n := new(holderNote)
	if json.Unmarshal(data, n) != nil || n.Node == "" {
		// Somebody has written something else into it. The delay that it was to
		// tell is not known: the one that we would ask for has to do.
		n = &holderNote{Node: "unknown", DelayMs: p.delay.time.Milliseconds()}
	}
	return n, stat, nil
}

// removeMarked deletes our node together with the note, if that is ours.
func (p *place) removeMarked(node string) error {
	d := p.delay
	if d.doubt {
		n, _, err := p.readNote()
		if err != nil {
			return err
		}
		d.ours = n != nil && n.Node == node
	}
	if !d.ours {
		return p.s.conn.Delete(node, -1)
	}
	results, err := p.s.conn.Multi(
		&zk.DeleteRequest{Path: node, Version: -1},
		&zk.DeleteRequest{Path: d.path, Version: -1})
	if fateOf(err) == fateRefused && len(results) > 0 && results[0].Error == nil {
		// Somebody has deleted the note; or we may not, and the next one waits.
		if !errors.Is(err, zk.ErrNoNode) {
			p.s.log.Error("note of a lock delay cannot be deleted, the delay will apply", "path", d.path, "err", err)
		}
		d.ours = false
		return p.s.conn.Delete(node, -1)
	}
	return err
}

// rewrite changes the data of our node. A writer that only reads from now on takes
// its note away.
func (p *place) rewrite(data []byte) error {
	set := &zk.SetDataRequest{Path: p.node, Data: data, Version: -1}
	if p.delay == nil || !p.delay.ours {
		_, err := p.s.conn.Set(set.Path, set.Data, set.Version)
		return err
	}
	results, err := p.s.conn.Multi(set, &zk.DeleteRequest{Path: p.delay.path, Version: -1})
	if err == nil || errors.Is(err, zk.ErrNoNode) && len(results) > 0 && results[0].Error == nil {
		p.delay.ours = false // or it had gone with an earlier request, whose reply was lost
	}
	if err != nil && !p.delay.ours {
		_, err = p.s.conn.Set(set.Path, set.Data, set.Version)
	}
	return err
}
