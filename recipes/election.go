package recipes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// selectorName is in the names of the nodes of Curator's LeaderSelector, latchName of its
// LeaderLatch.
const selectorName = lockName

// Election has one of its candidates lead at a time, in the order in which they stood. It is the
// queue of a Mutex with another name on its nodes: a Leadership promises the same as a Grant.
//
// Programs that take part with Curator's LeaderLatch and with an Election on the same path exclude
// each other, both see the other's candidates, and who leads with which data (which are the
// participant's id for Curator). With ElectionOptions.Selector the same is true of Curator's
// LeaderSelector, and of Mutexes. LeaderLatch and LeaderSelector do not exclude each other.
//
// kazoo's Election is kazoo's Lock, which excludes the layouts that it is told of:
//
//	election = client.Election(path, "me")
//	election.lock = client.Lock(path, "me", extra_lock_patterns=["latch-"])
//
// That excludes Elections, as they exclude it. kazoo and Curator exclude each other only if kazoo
// names its nodes as Curator does: a subclass of its Lock with _NODE_NAME = "-latch-" and "latch-"
// in _EXCLUDE_NAMES.
type Election struct {
	s    *Session
	path string
	opts ElectionOptions
}

// ElectionOptions are the settings of an Election. The zero value is good.
type ElectionOptions struct {
	// Selector has nodes called as Curator's LeaderSelector and InterProcessMutex call them, not as
	// its LeaderLatch does.
	Selector bool

	// OnWait is called while a candidate waits: see [MutexOptions].OnWait.
	OnWait func(Wait)

	// ACL is for the nodes that are made. Nil stands for [Config].ACL.
	ACL []zk.ACL
}

// NewElection returns the election on a path.
func NewElection(s *Session, path string, opts ElectionOptions) *Election {
	opts.ACL = s.aclOr(opts.ACL)
	return &Election{s: s, path: path, opts: opts}
}

// Leadership is an election that was won. It is a Grant, with the same methods: Token is larger
// than every earlier leader's, Lost is closed before another can lead.
type Leadership struct {
	*Grant
	e *Election
}

// Campaign stands for election and returns when the candidate leads. data can be read by everybody,
// also while it waits. As with Mutex.Lock, when there is an error no node stays behind; it is
// ErrExpired if the session expired.
func (e *Election) Campaign(ctx context.Context, data []byte) (*Leadership, error) {
	if data == nil {
		data = []byte{}
	}
	name := latchName
	if e.opts.Selector {
		name = selectorName
	}
	// No candidate yields: whoever is first is the leader for all who look.
	p := newPlace(e.s, e.path, name, KindWrite, MutexOptions{Data: data, ACL: e.opts.ACL, Yields: -1})
	p.report = newWaitReport(e.path, e.opts.OnWait)
	g, err := acquire(ctx, p, e.path, true)
	if err != nil {
		return nil, fmt.Errorf("recipes: campaign %s: %w", e.path, err)
	}
	return &Leadership{g, e}, nil
}

// Resign gives the leadership up; the next candidate leads. It returns as Grant.Unlock does.
func (l *Leadership) Resign(ctx context.Context) error {
	if err := l.letGo(ctx); err != nil {
		return fmt.Errorf("recipes: resign %s: %w", l.path, err)
	}
	return nil
}

// StandAgain resigns and stands for election once more, behind all candidates that wait. It returns
// when the candidate leads again, with data.
func (l *Leadership) StandAgain(ctx context.Context, data []byte) (*Leadership, error) {
	if err := l.Resign(ctx); err != nil {
		return nil, err
	}
	return l.e.Campaign(ctx, data)
}

// Proclaim changes the leader's data. They may be written twice if a reply is lost.
func (l *Leadership) Proclaim(ctx context.Context, data []byte) error {
	if err := setOwn(ctx, l.Grant, data); err != nil {
		return fmt.Errorf("recipes: proclaim %s: %w", l.path, err)
	}
	return nil
}

// Leader is who leads, as others see it: the first of the candidates. It may not have noticed yet,
// and it may be about to lose its session.
type Leader struct {
	Node  string    // path of its node; "" if nobody leads
	Data  []byte    // of the node: the leader's own words
	Token int64     // its fencing token; 0 if nobody leads
	Since time.Time // when it stood for election, by the cluster's clock

	mzxid int64 // when Data was written
}

// Leader returns who leads, for certain no one who had ceased to lead before the call. The error is
// ErrNoLeader if nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	leader, err := e.leader(ctx)
	if err == nil && leader.Node == "" {
		err = ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("recipes: leader of %s: %w", e.path, err)
	}
	return leader, nil
}

func (e *Election) leader(ctx context.Context) (Leader, error) {
	l, err := e.s.link.upToDate(ctx)
	if err != nil {
		return Leader{}, err
	}
	return call(ctx, e.s.link, func(ctx context.Context) (Leader, error) {
		leader, _, err := e.look(ctx, l)
		return leader, err
	}, nil)
}

// Observe yields who leads, and again whenever somebody else does, or nobody (a zero Leader), or
// the leader's data change, until ctx or the session ends; the reason for the end is yielded last.
// It never goes back to an earlier leader or earlier data, and sees every leader that leads until
// it is looked at; one that came and went in between may be skipped.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		err := e.observe(ctx, func(l Leader) bool { return yield(l, nil) })
		if err != nil {
			yield(Leader{}, fmt.Errorf("recipes: observe %s: %w", e.path, err))
		}
	}
}

func (e *Election) observe(ctx context.Context, yield func(Leader) bool) error {
	l, err := e.s.link.upToDate(ctx)
	if err != nil {
		return err
	}
	type seen struct {
		leader Leader
		watch  *watch
	}
	var last Leader
	for first := true; ; first = false {
		news := e.s.link.news()
		now, err := call(ctx, e.s.link, func(ctx context.Context) (r seen, err error) {
			r.leader, r.watch, err = e.look(ctx, l)
			return r, err
		}, nil)
		if err != nil {
			return err
		}
		if first || now.leader.Node != last.Node || now.leader.mzxid != last.mzxid {
			last = now.leader
			if !yield(last) {
				return nil
			}
		}
		if err := awaitAny(ctx, l, news, view{watch: now.watch}); err != nil {
			return err
		}
	}
}

// look reads who leads. The watch fires when that is no longer so: a candidate who comes later does
// not lead as long as the leader's node is there, so it is that which is watched, and the list of
// candidates only while it is empty.
func (e *Election) look(ctx context.Context, l *lease) (leader Leader, w *watch, err error) {
	others := make(map[string]bool) // that belong to no session, and so are no candidates
	err = e.s.link.again(ctx, l, func() error {
		for {
			names, _, err := e.s.link.conn.Children(e.path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			first := firstOf(names, others)
			if first == "" {
				list, err := e.s.watches.children(e.path)
				if err != nil {
					return err
				}
				if first = firstOf(list.names, others); first == "" {
					leader, w = Leader{}, list.watch
					return nil
				}
			}
			node := e.path + "/" + first
			v, err := e.s.watches.whileThere(node)
			if err != nil {
				return err
			}
			if v.exists && !locknode.Ephemeral(v.stat.EphemeralOwner) {
				others[first] = true
				continue
			}
			if v.exists {
				leader = Leader{node, v.data, v.stat.Czxid, time.UnixMilli(v.stat.Ctime), v.stat.Mzxid}
				w = v.watch
				return nil
			}
		}
	})
	return leader, w, err
}

// firstOf returns the name with the smallest sequence number, but for the others; "" if none has
// one.
func firstOf(names []string, others map[string]bool) (first string) {
	var smallest int64
	for _, name := range names {
		if n, ok := locknode.Sequence(name); ok && !others[name] && (first == "" || n < smallest) {
			first, smallest = name, n
		}
	}
	return first
}
