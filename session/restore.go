package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Errors of Restore. With any other one the state is as it was.
var (
	// ErrRestoreBusy says that this or another member is restoring already.
	ErrRestoreBusy = errors.New("session: another restore is under way")
	// ErrRestoreRefused says that the snapshot is damaged, or that the restore came too slowly.
	ErrRestoreRefused = errors.New("session: restore refused")
	// ErrRestoreUnknown says that the state may have been replaced, or may yet be.
	ErrRestoreUnknown = errors.New("session: it is not known whether the state has been replaced")
)

const (
	// restoreTimeout is the timeout of the session that a restore depends on, and bounds the time
	// of a step.
	restoreTimeout = 30 * time.Second
	// restoreTouch is the time from one extension of its lease to the next.
	restoreTouch = 3 * time.Second
	// restoreWindow bounds the steps that are proposed and not applied, a block of some 64 KiB
	// each.
	restoreWindow = 8
)

// restores is the restore that this member drives: a session of its own, with the steps as its
// requests (znode.RestoreStep).
type restores struct {
	m    *member
	busy sync.Mutex // held by Restore

	mu      sync.Mutex
	session wire.SessionID // 0 while there is none
	// generation of the session; 0 before the session exists
	generation uint64
	applied    uint64        // the newest step that was applied here
	committed  bool          // RestoreCommit has been proposed
	zxid       wire.Zxid     // of the restore, once it has taken effect
	err        error         // why there will be no more steps
	moved      chan struct{} // closed at the next change of these
}

// change changes the progress of the restore of a session, if it is the present one.
func (r *restores) change(session wire.SessionID, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == 0 || r.session != session {
		return
	}
	f()
	close(r.moved)
	r.moved = make(chan struct{})
}

// opened returns the generation of the session of the restore.
func (r *restores) opened() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation
}

func (r *restores) fail(session wire.SessionID, err error) {
	r.change(session, func() {
		if r.zxid == 0 && r.err == nil {
			if r.err = err; r.committed {
				r.err = fmt.Errorf("%w: %w", ErrRestoreUnknown, err)
			}
		}
	})
}

// await waits until ready returns true, and returns earlier with the error of the restore, or when
// ctx ends or nothing has changed for restoreTimeout.
func (r *restores) await(ctx context.Context, ready func() bool) error {
	timer := time.NewTimer(restoreTimeout)
	defer timer.Stop()
	for {
		r.mu.Lock()
		done, err, moved := ready(), r.err, r.moved
		r.mu.Unlock()
		switch {
		case done:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-moved:
			timer.Reset(restoreTimeout)
		case <-timer.C:
			return errRestoreStuck
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errRestoreStuck = errors.New("session: restore: no step was applied for a while: is there a leader?")

// restore is Manager.Restore.
func (r *restores) restore(ctx context.Context, sc *znode.SnapshotScanner,
	admit func(znode.Size) error) (wire.Zxid, error) {
	if !r.busy.TryLock() {
		return 0, ErrRestoreBusy
	}
	defer r.busy.Unlock()
	id := r.m.newID()
	r.mu.Lock()
	r.session, r.generation, r.applied, r.committed, r.zxid, r.err = id, 0, 0, false, 0, nil
	r.moved = make(chan struct{})
	r.mu.Unlock()
	defer r.change(id, func() { r.session = 0 })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.m.ctx, cancel)()
	err := r.open(ctx, id)
	if err != nil {
		return 0, err
	}
	var touching sync.WaitGroup
	defer touching.Wait()
	defer cancel()
	touching.Go(func() {
		every(ctx, restoreTouch, func() { _, _, _ = r.m.replica.Touch(ctx, []wire.SessionID{id}) })
	})
	d := restoreDriver{restores: r, id: id, generation: r.opened()}
	if err = d.load(ctx, sc); err == nil {
		err = d.check(ctx, admit)
	}
	if err != nil {
		d.giveUp()
		return 0, err
	}
	return d.commit(ctx)
}

func (r *restores) open(ctx context.Context, id wire.SessionID) error {
	c := znode.Connection{TimeoutMs: int32(restoreTimeout.Milliseconds()), Password: newPassword(), Addr: "0.0.0.0"}
	err := r.m.replica.Propose(ctx, &znode.Command{Session: id, Seq: r.m.nonce(),
		Body: &znode.CreateSession{Connection: c}})
	if err != nil {
		return err
	}
	return r.await(ctx, func() bool { return r.generation != 0 })
}

// restoreDriver proposes the steps of a restore.
type restoreDriver struct {
	*restores
	id         wire.SessionID
	generation uint64
	seq        uint64 // of the newest step
}

// propose proposes a step when at most window other steps are under way.
func (d *restoreDriver) propose(ctx context.Context, window uint64, step byte, body []byte) error {
	r := d.restores
	if err := r.await(ctx, func() bool { return r.err == nil && d.seq-r.applied <= window }); err != nil {
		return err
	}
	d.seq++
	return d.m.replica.Propose(ctx, &znode.Command{Session: d.id, Generation: d.generation, Seq: d.seq,
		Body: &znode.RestoreStep{Step: step, Data: body}})
}

func (d *restoreDriver) load(ctx context.Context, sc *znode.SnapshotScanner) error {
	header, err := sc.Header()
	if err == nil {
		err = d.propose(ctx, 0, znode.RestoreBegin, header)
	}
	for err == nil {
		var block []byte
		if block, err = sc.Next(); err == nil {
			err = d.propose(ctx, restoreWindow, znode.RestoreBlock, block)
		}
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// check has the replicas link and check the blocks that have arrived.
func (d *restoreDriver) check(ctx context.Context, admit func(znode.Size) error) error {
	r := d.restores
	for {
		err := r.await(ctx, func() bool { return r.err == nil && d.seq == r.applied })
		if err != nil {
			return err
		}
		var size znode.Size
		var ready bool
		d.m.replica.View(func(s *znode.Store) { size, ready = s.RestoreReady(d.id) })
		if ready {
			return admit(size)
		}
		if err := d.propose(ctx, 0, znode.RestoreCheck, nil); err != nil {
			return err
		}
	}
}

// commit replaces the state. From here on only the end of this member leaves the outcome open.
func (d *restoreDriver) commit(ctx context.Context) (wire.Zxid, error) {
	r := d.restores
	if err := ctx.Err(); err != nil {
		d.giveUp()
		return 0, err
	}
	r.change(d.id, func() { r.committed = true })
	err := d.propose(d.m.ctx, 0, znode.RestoreCommit, nil)
	for err == nil {
		// A leader may be missing for longer; then this member goes on waiting.
		if err = r.await(d.m.ctx, func() bool { return r.zxid != 0 }); err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.zxid, nil
		}
		if errors.Is(err, errRestoreStuck) {
			err = nil
		}
	}
	if !errors.Is(err, ErrRestoreUnknown) && !errors.Is(err, ErrRestoreRefused) {
		err = fmt.Errorf("%w: %w", ErrRestoreUnknown, err)
	}
	return 0, err
}

// giveUp closes the session, with which the restore ends. If that does not happen the session
// expires.
func (d *restoreDriver) giveUp() {
	ctx, cancel := context.WithTimeout(d.m.ctx, time.Second)
	defer cancel()
	d.seq++
	_ = d.m.replica.Propose(ctx, &znode.Command{Session: d.id, Generation: d.generation, Seq: d.seq,
		Body: &znode.Request{Op: wire.OpCloseSession}})
}

// created is the part of Applied for the session of a restore.
func (r *restores) created(c *znode.Command, res *znode.Result) {
	switch res.Status {
	case znode.Done:
		r.change(c.Session, func() { r.generation = res.Generation })
	case znode.BadPassword:
		r.fail(c.Session, errors.New("session: restore: the session id is in use"))
	}
}

// stepApplied is the part of Applied for the steps of a restore.
func (r *restores) stepApplied(c *znode.Command, res *znode.Result) {
	switch {
	case res.Status == znode.NoSession:
		r.change(c.Session, func() {
			if r.zxid == 0 && r.err == nil { // not a step that was proposed twice
				r.err = fmt.Errorf("%w: its session has expired", ErrRestoreRefused)
			}
		})
	case res.Status != znode.Done:
	case res.Code == wire.CodeReconfigInProgress:
		r.fail(c.Session, ErrRestoreBusy)
	case res.Code != wire.CodeOK:
		r.change(c.Session, func() { r.err = fmt.Errorf("%w: %s", ErrRestoreRefused, res.Reason) })
	default:
		r.change(c.Session, func() {
			if r.applied = c.Seq; res.Restored {
				r.zxid = res.Zxid
			}
		})
	}
}

// stateReplaced is called when a snapshot from the leader has replaced the state, which shows the
// outcome of the steps in flight.
func (r *restores) stateReplaced(store *znode.Store) {
	r.mu.Lock()
	id, opened := r.session, r.generation != 0
	r.mu.Unlock()
	if id == 0 {
		return
	}
	if info, ok := store.Sessions().Get(id); ok {
		r.change(id, func() { r.generation, r.applied = info.Generation, max(r.applied, info.LastSeq) })
	} else if opened {
		r.fail(id, errors.New("session: restore: its session has ended"))
	}
}
