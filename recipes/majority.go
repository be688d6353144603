package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/internal/mutant"
)

// MajorityMutex is the same lock on several independent clusters, held while more
// than half of them have granted it. It is what RedLock attempts with several
// Redis servers, for who wants to survive the loss of a whole cluster.
//
// What is better than there: each cluster is a real lock service, whose grants
// end by the holder's monotonic clock before the cluster gives the lock away, and
// which forgets none when it restarts. So two MajorityMutexes never stand at one
// time, whatever clocks and networks do.
//
// What is not:
//
//   - There is no one token. Two majorities have a cluster in common, and there
//     the later holder has the larger token; which cluster that is differs. A
//     resource that is to refuse late writes has to be sent all the
//     [MultiGrant.Tokens], to remember the largest that it has seen per cluster,
//     and to refuse a request if any of its tokens, 0 left out, is smaller than
//     the one remembered for that cluster. To send only one of them is no fencing.
//   - It is not fair, and it can take long: contenders that have split the clusters
//     among them all give up and try again after a random time.
//   - With an even number of clusters a majority is one more than half: four
//     survive the loss of one, as three do.
//   - It costs what as many Mutexes cost. One cluster of five members survives the
//     loss of two of them, orders its contenders, has a token, and is almost always
//     the better answer.
type MajorityMutex struct {
	locks []*Mutex
	round time.Duration
}

// MajorityOptions are the settings of a MajorityMutex.
type MajorityOptions struct {
	MutexOptions

	// Round is how long a contender that has the lock on some clusters, but on no
	// majority, waits for more before it starts again; 0 stands for 2 s. It should
	// be well above the time of a few round trips to the slowest cluster.
	Round time.Duration
}

// NewMajorityMutex returns the lock of the path on all clusters, one Session for
// each. All contenders have to name the same clusters.
func NewMajorityMutex(path string, opts MajorityOptions, sessions ...*Session) *MajorityMutex {
	m := &MajorityMutex{round: cmp.Or(opts.Round, 2*time.Second)}
	for _, s := range sessions {
		m.locks = append(m.locks, NewMutex(s, path, opts.MutexOptions))
	}
	return m
}

// Lock waits until a majority of the clusters has granted the lock. Those that come
// later join the grant until it is unlocked. When it returns an error, the lock is
// held nowhere, as with [Mutex.Lock].
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

// TryLock acquires the lock if it is free on a majority of the clusters, else it
// returns ErrLocked, perhaps beside other reasons. It waits for as many clusters to
// answer as that takes.
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

// try queues up at all clusters, and returns when a majority has granted, or when
// that takes too long for what we hold already.
func (m *MajorityMutex) try(ctx context.Context, wait bool) (*MultiGrant, error) {
	n := len(m.locks)
	if n == 0 {
		return nil, errors.New("no sessions given")
	}
	need := n/2 + 1
	if mutant.On(mutant.MinorityHeld) {
		need--
	}
	mg := newMultiGrant(n, need)
	// The end of ctx is our caller's business only until we return: who joins later
	// does not depend on it.
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

// verdict tells what too many errors come to.
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
