package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// MultiMutex is several locks that are held together, or not at all. They are acquired one after
// the other, in the order of their paths, whatever the order in which they were given: so programs
// that use MultiMutexes (or take their locks in the order of the paths) cannot wait for each other
// in a circle.
type MultiMutex struct {
	locks []Locker
	err   error
}

// NewMultiMutex puts locks together. They may be of any recipe, on any sessions; two of the same
// path are refused by Lock.
func NewMultiMutex(locks ...Locker) *MultiMutex {
	m := &MultiMutex{locks: slices.Clone(locks)}
	slices.SortStableFunc(m.locks, func(a, b Locker) int { return strings.Compare(a.Path(), b.Path()) })
	for i := 1; i < len(m.locks); i++ {
		if p := m.locks[i].Path(); p == m.locks[i-1].Path() {
			m.err = fmt.Errorf("recipes: lock several: %s is among them twice", p)
		}
	}
	if len(locks) == 0 {
		m.err = errors.New("recipes: lock several: none given")
	}
	return m
}

// Lock waits until all the locks are held. When it returns an error, none is, and nothing stays
// behind, as with [Mutex.Lock]. While it waits for one, those that it has are held; if one of them
// is lost meanwhile, it gives up.
func (m *MultiMutex) Lock(ctx context.Context) (*MultiGrant, error) {
	return m.acquire(ctx, Locker.Lock)
}

// TryLock acquires all the locks if all of them are free, else it returns ErrLocked.
func (m *MultiMutex) TryLock(ctx context.Context) (*MultiGrant, error) {
	return m.acquire(ctx, Locker.TryLock)
}

func (m *MultiMutex) acquire(ctx context.Context, lock func(Locker, context.Context) (*Grant, error),
) (*MultiGrant, error) {
	if m.err != nil {
		return nil, m.err
	}
	whole, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mg := newMultiGrant(len(m.locks), len(m.locks))
	for i, l := range m.locks {
		g, err := lock(l, whole)
		if err == nil {
			g.whenLost(cancel)
			mg.add(i, g)
			continue
		}
		if cause := context.Cause(whole); cause != nil && ctx.Err() == nil {
			err = fmt.Errorf("recipes: lock several: one was lost while waiting for %s: %w", l.Path(), cause)
		}
		mg.release(ctx)
		return nil, err
	}
	if err := mg.begin(); err != nil {
		mg.release(ctx)
		return nil, fmt.Errorf("recipes: lock several: %w", err)
	}
	return mg, nil
}

// MultiGrant is several grants that are one: of a [MultiMutex], which is lost when any of them is,
// or of a [MajorityMutex], which is lost when no majority is left. Its methods may be called from
// any goroutine.
type MultiGrant struct {
	need int             // number of grants that have to stand
	life context.Context // ends with err as its cause
	end  context.CancelCauseFunc

	stop func() // ends the acquiring of further ones
	wg   sync.WaitGroup

	// Lock: mu is taken under a Session's, and nothing under it.
	mu       sync.Mutex
	grants   []*Grant // nil where none was granted
	standing int
	begun    bool
	err      error // why it ended, once it has begun
}

func newMultiGrant(n, need int) *MultiGrant {
	life, end := context.WithCancelCause(context.Background())
	return &MultiGrant{need: need, grants: make([]*Grant, n), life: life, end: end, stop: func() {}}
}

// add adds the i'th grant.
func (m *MultiGrant) add(i int, g *Grant) {
	m.mu.Lock()
	m.grants[i] = g
	m.standing++
	m.mu.Unlock()
	g.whenLost(func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.standing--; m.begun && m.standing < m.need {
			m.endLocked(err)
		}
	})
}

func (m *MultiGrant) endLocked(err error) {
	if m.err == nil {
		m.err = err
		m.end(err)
	}
}

// begin makes it a grant, if enough of its parts stand.
func (m *MultiGrant) begin() error {
	m.look()
	m.mu.Lock()
	m.begun = m.standing >= m.need
	begun := m.begun
	m.mu.Unlock()
	if begun {
		return nil
	}
	errs := []error{errors.New("lost before all were granted")}
	for _, g := range m.Grants() {
		if g == nil {
			continue
		}
		if err := g.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.path, err))
		}
	}
	return errors.Join(errs...)
}

// look has all parts look at the clock.
func (m *MultiGrant) look() {
	for _, g := range m.Grants() {
		if g != nil {
			g.Err()
		}
	}
}

// Grants returns the parts: for a MultiMutex in the order of the paths; for a MajorityMutex in the
// order of the sessions, with nil where none was granted so far.
func (m *MultiGrant) Grants() []*Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.grants)
}

// Tokens returns the tokens of the [MultiGrant.Grants], 0 for nil.
func (m *MultiGrant) Tokens() []int64 {
	grants := m.Grants()
	tokens := make([]int64, len(grants))
	for i, g := range grants {
		if g != nil {
			tokens[i] = g.token
		}
	}
	return tokens
}

// Lost returns a channel that is closed when too many of the parts are lost, and by Unlock; see
// [Grant.Lost].
func (m *MultiGrant) Lost() <-chan struct{} {
	m.look()
	return m.life.Done()
}

// Context returns a context that ends when parent does, or when too many of the parts are lost, and
// by Unlock; see [Grant.Context].
func (m *MultiGrant) Context(parent context.Context) context.Context {
	m.look()
	return during(parent, m.life)
}

// Held reports whether enough of the parts stand right now; see [Grant.Held].
func (m *MultiGrant) Held() bool { return m.Err() == nil }

// Err returns nil if enough of the parts stand, else why the last straw is lost; see [Grant.Err].
func (m *MultiGrant) Err() error {
	m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Valid asks the cluster, or the clusters, about all the parts, and returns nil if enough of them
// stand; see [Grant.Valid].
func (m *MultiGrant) Valid(ctx context.Context) error {
	var wg sync.WaitGroup
	grants := m.Grants()
	errs := make([]error, len(grants))
	for i, g := range grants {
		if g == nil {
			errs[i] = errors.New("not granted")
			continue
		}
		wg.Go(func() { errs[i] = g.Valid(ctx) })
	}
	wg.Wait()
	if err := m.Err(); err != nil {
		return err
	}
	good := len(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err != nil }))
	if good < m.need {
		return errors.Join(errs...)
	}
	return nil
}

// Guard does ops only if all the grants stand; see [Grant.Guard]. They have to be of one Session,
// or it is ErrNoGuard: no transaction spans clusters.
func (m *MultiGrant) Guard(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	if err := m.Err(); err != nil {
		return nil, fmt.Errorf("recipes: guard: %w", err)
	}
	grants := m.Grants()
	for _, g := range grants {
		if g == nil || g.node.link != grants[0].node.link {
			return nil, fmt.Errorf("recipes: guard: %w", ErrNoGuard)
		}
	}
	return guard(ctx, grants, ops)
}

// Unlock gives all the locks back, the last one first. It returns nil if it was held until then and
// all nodes are gone; see [Grant.Unlock].
func (m *MultiGrant) Unlock(ctx context.Context) error {
	m.look()
	m.mu.Lock()
	m.endLocked(ErrReleased)
	err := m.err
	m.mu.Unlock()
	if rerr := m.release(ctx); err == ErrReleased {
		err = rerr
	}
	return err
}

// release unlocks all grants, also those that come while it does.
func (m *MultiGrant) release(ctx context.Context) error {
	m.stop()
	m.wg.Wait()
	var errs []error
	good := 0
	for _, g := range slices.Backward(m.Grants()) {
		if g == nil {
			continue
		}
		if err := g.Unlock(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		good++
	}
	if good >= m.need {
		return nil
	}
	return errors.Join(errs...)
}

// MajorityMutex is the same lock on several independent clusters, held while more than half of them
// have granted it. RedLock attempts the same with several Redis servers. It survives the loss of a
// whole cluster.
//
// Its advantage: each cluster is a real lock service. Grants end by the holder's monotonic clock
// before the cluster gives the lock away, and a cluster that restarts forgets none. So two
// MajorityMutexes never stand at one time, whatever clocks and networks do.
//
// Its limits:
//
//   - There is no one token. Two majorities have a cluster in common, and there the later holder
//     has the larger token; which cluster that is differs. A resource that is to refuse late writes
//     has to be sent all the [MultiGrant.Tokens], to remember the largest that it has seen per
//     cluster, and to refuse a request if any of its tokens, 0 left out, is smaller than the one
//     remembered for that cluster. To send only one of them is no fencing.
//   - It is not fair, and it can take long: contenders that have split the clusters among them all
//     give up and try again after a random time.
//   - With an even number of clusters a majority is one more than half: four survive the loss of
//     one, as three do.
//   - It costs as much as one Mutex per cluster. One cluster of five members survives the loss of
//     two of them, orders its contenders, has a token, and is almost always the better answer.
type MajorityMutex struct {
	locks []*Mutex
	round time.Duration
}

// MajorityOptions are the settings of a MajorityMutex.
type MajorityOptions struct {
	MutexOptions

	// Round is how long a contender that has the lock on some clusters, but on no majority, waits
	// for more before it starts again; 0 stands for 2 s. It should be well above the time of a few
	// round trips to the slowest cluster.
	Round time.Duration
}

// NewMajorityMutex returns the lock of the path on all clusters, one Session for each. All
// contenders have to name the same clusters.
func NewMajorityMutex(path string, opts MajorityOptions, sessions ...*Session) *MajorityMutex {
	m := &MajorityMutex{round: cmp.Or(opts.Round, 2*time.Second)}
	for _, s := range sessions {
		m.locks = append(m.locks, NewMutex(s, path, opts.MutexOptions))
	}
	return m
}

// Lock waits until a majority of the clusters has granted the lock. Those that come later join the
// grant until it is unlocked. When it returns an error, the lock is held nowhere, as with
// [Mutex.Lock].
func (m *MajorityMutex) Lock(ctx context.Context) (*MultiGrant, error) {
	for {
		mg, err := m.try(ctx, true)
		if err == nil {
			return mg, nil
		}
		if !errors.Is(err, errSplit) {
			return nil, fmt.Errorf("recipes: majority lock: %w", err)
		}
		t := time.NewTimer(rand.N(2 * m.round))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("recipes: majority lock: %w", ctx.Err())
		}
	}
}

// TryLock acquires the lock if it is free on a majority of the clusters, else it returns ErrLocked,
// perhaps beside other reasons. It waits for as many clusters to answer as that takes.
func (m *MajorityMutex) TryLock(ctx context.Context) (*MultiGrant, error) {
	mg, err := m.try(ctx, false)
	if err == errSplit {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("recipes: majority lock: %w", err)
	}
	return mg, nil
}

// errSplit: nobody is to blame; to try again may help.
var errSplit = errors.New("no majority")

// try queues up at all clusters, and returns when a majority has granted, or when that takes too
// long for the grants that we hold already.
func (m *MajorityMutex) try(ctx context.Context, wait bool) (*MultiGrant, error) {
	n := len(m.locks)
	if n == 0 {
		return nil, errors.New("no sessions given")
	}
	need := n/2 + 1
	mg := newMultiGrant(n, need)
	// The end of ctx is our caller's business only until we return: who joins later does not depend
	// on it.
	all, stop := context.WithCancel(context.WithoutCancel(ctx))
	mg.stop = stop
	outcomes := make(chan error, n)
	for i, l := range m.locks {
		// These end with all, so that the caller that stops them can wait.
		mg.wg.Go(func() {
			lock := l.Lock
			if !wait {
				lock = l.TryLock
			}
			g, err := lock(all)
			if err == nil {
				mg.add(i, g)
			}
			outcomes <- err
		})
	}
	err := m.awaitMajority(ctx, outcomes, n, need)
	if err == nil && mg.begin() == nil {
		return mg, nil
	}
	mg.release(ctx)
	return nil, cmp.Or(err, errSplit)
}

// awaitMajority waits for a majority of good outcomes.
func (m *MajorityMutex) awaitMajority(ctx context.Context, outcomes <-chan error, n, need int) error {
	var late <-chan time.Time
	var errs []error
	for good := 0; good < need; {
		select {
		case err := <-outcomes:
			if err != nil {
				errs = append(errs, err)
				if len(errs) > n-need {
					return m.verdict(ctx, errs)
				}
				continue
			}
			if good++; late == nil {
				t := time.NewTimer(m.round)
				defer t.Stop()
				late = t.C
			}
		case <-late:
			return errSplit
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// verdict is the error of an attempt with too many errors.
func (m *MajorityMutex) verdict(ctx context.Context, errs []error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range errs {
		if !errors.Is(err, ErrLocked) && !errors.Is(err, ErrExpired) && !errors.Is(err, ErrDeleted) {
			return errors.Join(errs...)
		}
	}
	return fmt.Errorf("%w: %w", errSplit, errors.Join(errs...))
}
