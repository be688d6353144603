package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// MaxLockDelay is the longest LockDelay, as in Chubby and Consul: a mistake in one program shall
// not keep a lock from all others for long.
const MaxLockDelay = time.Minute

// delay is the LockDelay of a contender, and the note that its holder leaves beside the path.
//
// Invariant: while a holder's node is there, so is its note, and the note goes in the transaction
// that deletes the node in an orderly way. So a contender that is at the front and finds a note
// with the name of another knows that the other has vanished. All changes of the note are made by a
// contender at the front, in a transaction that checks that its own node is still there.
type delay struct {
	node  *node
	place *place
	reads bool // readers leave no note
	time  time.Duration
	path  string    // of the note
	ours  bool      // the note is about our node
	doubt bool      // it may be: the outcome of a request is not known
	seen  time.Time // when we first knew that the loss had been noticed
}

// holderNote is the note's content.
type holderNote struct {
	Info
	Node    string `json:"node"`    // the holder's, full path
	DelayMs int64  `json:"delayMs"` // what the holder wants
	// Vanished: a contender has noticed that the node is gone. The note's mtime is when that was.
	Vanished bool `json:"vanished,omitempty"`
}

const delayName = "_lockdelay_"

// newDelay is the delay d of a contender; nil if d is 0.
func newDelay(p *place, d time.Duration) (*delay, error) {
	if d < 0 || d > MaxLockDelay {
		return nil, fmt.Errorf("lock delay %v: not between 0 and %v", d, MaxLockDelay)
	}
	if d == 0 {
		return nil, nil
	}
	dir, name := split(p.node.dir)
	return &delay{node: p.node, place: p, reads: p.kind == KindRead, time: d, path: dir + "/" + delayName + name}, nil
}

// sitOut is called at the front of the queue. It waits until the delay of a holder that has
// vanished is over, and leaves our own note.
func (d *delay) sitOut(ctx context.Context, wait bool) error {
	// Most often there is no note: try that first.
	done, err := d.createNote()
	for attempt := 1; !done; {
		switch {
		case err == nil:
			attempt = 1
		case fateOf(err) == fateUnknown:
			if err := d.node.link.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
		default:
			return err
		}
		if err := d.node.over(); err != nil {
			return err
		}
		done, err = d.heedNote(ctx, wait)
	}
	return nil
}

// heedNote looks at the note and takes the next step. Without an error, and not done, the caller
// has to call it again.
func (d *delay) heedNote(ctx context.Context, wait bool) (done bool, err error) {
	n, stat, err := d.readNote()
	switch {
	case err != nil:
		return false, err
	case n == nil:
		return d.createNote()
	case n.Node == d.node.path:
		d.ours = true
		return true, nil
	case !n.Vanished:
		d.seen = time.Time{}
		n.Vanished = true
		_, err := d.changeNote(&zk.SetDataRequest{Path: d.path, Data: n.encode(), Version: stat.Version})
		return false, err
	}
	if left := d.delayLeft(n, stat); left > 0 {
		if !wait {
			return false, ErrDelayed
		}
		return false, d.idle(ctx, left)
	}
	if d.reads {
		return d.changeNote(&zk.DeleteRequest{Path: d.path, Version: stat.Version})
	}
	return d.takeNote(&zk.SetDataRequest{Path: d.path, Data: d.note().encode(), Version: stat.Version})
}

// delayLeft is how long the lock has to be kept from us yet.
//
// Two times of the cluster's clock are compared only where they are of writes that it has put in
// this order, and our clock does the rest.
func (d *delay) delayLeft(n *holderNote, stat *zk.Stat) time.Duration {
	if d.seen.IsZero() {
		d.seen = time.Now()
	}
	gone := time.Since(d.seen)
	if stat.Mzxid < d.node.token { // we came after it had been noticed
		gone = max(gone, time.Duration(d.node.ctime-stat.Mtime)*time.Millisecond+time.Since(d.node.made))
	}
	return min(time.Duration(n.DelayMs)*time.Millisecond, MaxLockDelay) - gone
}

// idle waits at the front of the queue.
func (d *delay) idle(ctx context.Context, left time.Duration) error {
	d.place.doing.set("waiting for the lock delay of a holder that has vanished")
	d.place.report.delayed(ctx, d.place, left)
	t := time.NewTimer(left)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return nil
		case ev := <-d.node.own:
			if err := d.node.changed(ctx, ev); err != nil {
				return err
			}
		case <-d.node.lease.ended:
			return d.node.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// note is ours.
func (d *delay) note() *holderNote {
	return &holderNote{Info: newInfo(""), Node: d.node.path, DelayMs: d.time.Milliseconds()}
}

func (n *holderNote) encode() []byte {
	data, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return data
}

// createNote makes our note, if there is none of another. Readers leave none.
func (d *delay) createNote() (done bool, err error) {
	if d.reads {
		exists, _, err := d.node.link.conn.Exists(d.path)
		return err == nil && !exists, err
	}
	return d.takeNote(&zk.CreateRequest{Path: d.path, Data: d.note().encode(), Acl: d.node.acl,
		Flags: zk.FlagPersistent})
}

// takeNote makes a change that makes the note ours.
func (d *delay) takeNote(op any) (done bool, err error) {
	done, err = d.changeNote(op)
	d.ours = d.ours || done
	d.doubt = d.doubt || fateOf(err) > fateRefused
	return done, err
}

// changeNote makes a change of the note, if our node is there and the note is as it was read.
func (d *delay) changeNote(op any) (done bool, err error) {
	results, err := d.node.link.conn.Multi(&zk.CheckVersionRequest{Path: d.node.path, Version: -1}, op)
	switch {
	case errors.Is(err, zk.ErrNoNode) && len(results) > 0 && results[0].Error != nil:
		return false, d.node.gone(zk.ErrNoNode)
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
		return false, nil
	}
	return err == nil, err
}

// readNote reads the note; nil if there is none. It leaves no doubt.
func (d *delay) readNote() (*holderNote, *zk.Stat, error) {
	if d.doubt {
		if err := d.node.link.writeNothing(); err != nil {
			return nil, nil, err
		}
	}
	data, stat, err := d.node.link.conn.Get(d.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, nil, err
	}
	d.doubt = false
	if err != nil {
		return nil, nil, nil
	}
	n := new(holderNote)
	if json.Unmarshal(data, n) != nil || n.Node == "" {
		// Somebody has written something else into it. The delay that it was to tell is not known:
		// the one that we would ask for has to do.
		n = &holderNote{Node: "unknown", DelayMs: d.time.Milliseconds()}
	}
	return n, stat, nil
}

// remove deletes our node together with the note, if that is ours.
func (d *delay) remove(node string) error {
	if d.doubt {
		n, _, err := d.readNote()
		if err != nil {
			return err
		}
		d.ours = n != nil && n.Node == node
	}
	if !d.ours {
		return d.node.remove(node)
	}
	results, err := d.node.link.conn.Multi(
		&zk.DeleteRequest{Path: node, Version: -1},
		&zk.DeleteRequest{Path: d.path, Version: -1})
	if fateOf(err) == fateRefused && len(results) > 0 && results[0].Error == nil {
		// Somebody has deleted the note; or we may not, and the next one waits.
		if !errors.Is(err, zk.ErrNoNode) {
			d.node.link.log.Error("note of a lock delay cannot be deleted, the delay will apply", "path", d.path, "err",
				err)
		}
		d.ours = false
		return d.node.remove(node)
	}
	return err
}

// rewrite changes the data of our node. A writer that only reads from now on takes its note away.
func (d *delay) rewrite(data []byte) error {
	if !d.ours {
		return d.node.set(data)
	}
	set := &zk.SetDataRequest{Path: d.node.path, Data: data, Version: -1}
	results, err := d.node.link.conn.Multi(set, &zk.DeleteRequest{Path: d.path, Version: -1})
	if err == nil || errors.Is(err, zk.ErrNoNode) && len(results) > 0 && results[0].Error == nil {
		d.ours = false // or it had gone with an earlier request, and the reply was lost
	}
	if err != nil && !d.ours {
		err = d.node.set(data)
	}
	return err
}
