package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Changes of the members as tests request them. Clients request them over their sessions.

// ErrOutcomeUnknown says that a change of the members was requested, and that this member does not
// know whether it was made.
var ErrOutcomeUnknown = errors.New("quorum: outcome unknown")

// AddMember makes m a member, or changes the role or the addresses of the member with its number.
// It may be called on any member, and returns when the change is done. A member that is new must be
// running, with server lines for the present members and itself; it gets the state from the leader.
// The error is a wire.Code, with the reason in words, if the change has been refused and nothing
// has changed; ErrOutcomeUnknown or that of ctx if this member does not know.
func (r *Replica) AddMember(ctx context.Context, m znode.Member) error {
	if m.ClientAddr == "" {
		m.ClientAddr = "0.0.0.0:2181" // reconfig insists on one
	}
	return r.changeOnce(ctx, wire.ReconfigRequest{Joining: m.String(), NullNewMembers: true},
		func(ms []znode.Member) bool { return slices.Contains(ms, m) })
}

// RemoveMember is the reverse of AddMember. The leader may be removed, too: it transfers the
// leadership first. Errors are those of AddMember.
func (r *Replica) RemoveMember(ctx context.Context, id MemberID) error {
	return r.changeOnce(ctx, wire.ReconfigRequest{Leaving: strconv.Itoa(int(id)), NullNewMembers: true},
		func(ms []znode.Member) bool {
			return !slices.ContainsFunc(ms, func(m znode.Member) bool { return MemberID(m.ID) == id })
		})
}

// versionPause is how long a member is given to learn of a newer version of the members.
const versionPause = 10 * time.Millisecond

// changeOnce requests a change from the version of the members that this member knows, again if
// that is not the newest one.
func (r *Replica) changeOnce(ctx context.Context, req wire.ReconfigRequest, done func([]znode.Member) bool) error {
	for {
		_, version := r.Members()
		req.CurConfigID = int64(version)
		err := r.Reconfigure(ctx, req)
		if !errors.Is(err, wire.CodeBadVersion) && !errors.Is(err, wire.CodeReconfigInProgress) {
			return err
		}
		if ms, _ := r.Members(); done(ms) || ctx.Err() != nil {
			return ctx.Err() // nil: the request had arrived twice
		}
		sleep(ctx, versionPause)
	}
}

// Reconfigure changes the members as a client's reconfig does. Errors are those of AddMember. Note
// that a request which names no version (CurConfigID -1) may take effect twice.
func (r *Replica) Reconfigure(ctx context.Context, req wire.ReconfigRequest) error {
	c := &znode.Command{Seq: r.requested().nonce(uint64(r.cfg.Now().UnixNano())), Body: &znode.Reconfigure{Request: req.Append(nil)}}
	result := r.requested().add(c.Seq)
	defer r.requested().remove(c.Seq)
	if err := r.Propose(ctx, c); err != nil {
		return fmt.Errorf("quorum: change members: %w", err)
	}
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("quorum: change members: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("quorum: change members: %w", ctx.Err())
	}
}

// requested are the changes that this member has requested. Its listener is a recorder.
func (r *Replica) requested() *requestedChanges { return &r.cfg.Listener.(*recorder).requested }

// requestedChanges are the changes of the members that a member has requested and waits for.
type requestedChanges struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]chan error
}

// nonce is a number that no command of this member has had.
func (a *requestedChanges) nonce(now uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = max(a.last+1, now) | 1<<63
	return a.last
}

func (a *requestedChanges) add(nonce uint64) <-chan error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[uint64]chan error{}
	}
	c := make(chan error, 1)
	a.open[nonce] = c
	return c
}

func (a *requestedChanges) remove(nonce uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, nonce)
}

// applied is called, inside the critical section, with the commands that change the members.
func (a *requestedChanges) applied(c *znode.Command, res *znode.Result) {
	if c.Session != 0 || res.Deferred || res.Status != znode.Done {
		return
	}
	var err error
	ended, _ := c.Body.(*znode.Reconfigured)
	switch {
	case res.Code != wire.CodeOK && ended != nil && ended.Why != "":
		err = fmt.Errorf("%w: %s", res.Code, ended.Why)
	case res.Code != wire.CodeOK:
		err = res.Code
	}
	a.end(c.Seq, err)
}

func (a *requestedChanges) end(nonce uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.open[nonce]; c != nil {
		c <- err
		delete(a.open, nonce)
	}
}

// lost takes note that a snapshot has replaced the state, and with it what became of the changes
// under way.
func (a *requestedChanges) lost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for nonce, c := range a.open {
		c <- ErrOutcomeUnknown
		delete(a.open, nonce)
	}
}
