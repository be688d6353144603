package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"
)

// Barrier blocks its waiters as long as it is set. It is one persistent node; Curator's
// DistributedBarrier and kazoo's Barrier on the same path are the same barrier. It belongs to
// nobody: it stays set when the program that has set it ends.
type Barrier struct {
	s    *Session
	path string
	acl  []zk.ACL
}

// NewBarrier returns the barrier on a path. acl is for the nodes that are made; nil stands for
// [Config].ACL.
func NewBarrier(s *Session, path string, acl []zk.ACL) *Barrier {
	return &Barrier{s: s, path: path, acl: s.aclOr(acl)}
}

// Set sets the barrier. That it is set already is no error.
func (b *Barrier) Set(ctx context.Context) error {
	err := b.s.link.change(ctx, func(ctx context.Context, l *lease) error {
		return b.s.link.makeNode(ctx, l, b.path, []byte{}, b.acl)
	})
	if err != nil {
		return fmt.Errorf("recipes: set barrier %s: %w", b.path, err)
	}
	return nil
}

// Remove lets everybody through. That the barrier is not set is no error.
func (b *Barrier) Remove(ctx context.Context) error {
	err := b.s.link.change(ctx, func(ctx context.Context, l *lease) error {
		return b.s.link.again(ctx, l, func() error { return b.s.link.conn.Delete(b.path, -1) })
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("recipes: remove barrier %s: %w", b.path, err)
	}
	return nil
}

// Wait returns nil as soon as it sees that the barrier is not set; it counts every change that was
// acknowledged to anybody before the call. A barrier that is removed and set again at once may or
// may not let through those who wait.
//
// It returns ErrExpired when the session expires, though nothing is lost by it: call it again.
func (b *Barrier) Wait(ctx context.Context) error {
	err := b.s.link.do(ctx, func(ctx context.Context) error {
		l, err := b.s.link.ready(ctx)
		if err != nil {
			return err
		}
		err = b.s.link.catchUp(ctx, l)
		if err != nil {
			return err
		}
		return b.s.watches.until(ctx, l,
			func() (view, error) { return b.s.watches.exists(b.path) },
			func(v view) (bool, error) { return !v.exists, nil })
	})
	if err != nil {
		return fmt.Errorf("recipes: wait for barrier %s: %w", b.path, err)
	}
	return nil
}

// DoubleBarrier lets a number of members begin together and end together: Enter returns when that
// many have entered, Leave when those that were inside have left.
//
// It has the nodes of Curator's DistributedDoubleBarrier and kazoo's DoubleBarrier, which can take
// part: an ephemeral child of the path for each member, and a child "ready", from when enough have
// entered.
//
// The number is a threshold, no limit: who enters while the round goes on gets in at once, as with
// Curator, and writes its node once more, by which the others know that it is inside.
//
// # Members that vanish
//
// A member no longer counts if its session ends before enough have entered: "ready" is made in a
// multi that checks that all those who were counted are still there, so nobody is let in by a
// member that has gone. (Curator and kazoo do not check.) A member that vanishes inside is not
// waited for when the others leave: it may still be at work, and only a fencing token or its own
// Lost can stop it. When all vanish, "ready" stays behind; the next one to enter sees that it
// belongs to nobody who is there, and removes it. (Curator's and kazoo's take it for theirs.)
//
// # With Curator and kazoo
//
// Curator's leave returns early, when one other member is left inside; kazoo's removes "ready"
// before all have seen it, so that a member which is disconnected just then waits for ever. The
// promises hold where all members are of this package; with others, while they keep to them.
type DoubleBarrier struct {
	s    *Session
	path string
	n    int
	acl  []zk.ACL
}

// readyName is the child that stands for an open barrier.
const readyName = "ready"

// NewDoubleBarrier returns the barrier on a path, for n members. acl is for the nodes that are
// made; nil stands for [Config].ACL.
func NewDoubleBarrier(s *Session, path string, n int, acl []zk.ACL) *DoubleBarrier {
	return &DoubleBarrier{s: s, path: path, n: max(n, 1), acl: s.aclOr(acl)}
}

// Inside is a member's stay in a DoubleBarrier.
type Inside struct {
	b     *DoubleBarrier
	grant *Grant
	round int64 // the czxid of the "ready" that let it in
}

// Enter waits until enough members have entered. data is stored in the member's node (kazoo has an
// identifier there). When it returns an error the member's node is gone, or goes in the background.
func (b *DoubleBarrier) Enter(ctx context.Context, data []byte) (*Inside, error) {
	if data == nil {
		data = []byte{}
	}
	in, err := b.enter(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("recipes: enter %s: %w", b.path, err)
	}
	return in, nil
}

func (b *DoubleBarrier) enter(ctx context.Context, data []byte) (*Inside, error) {
	grant, err := hold(ctx, holding{s: b.s, dir: b.path, name: newUUID(), data: data, acl: b.acl})
	if err != nil {
		return nil, err
	}
	round, err := call(ctx, b.s.link, func(ctx context.Context) (int64, error) {
		return b.awaitOpen(ctx, grant)
	}, nil)
	if err == nil {
		err = grant.Err()
	}
	if err != nil {
		grant.giveUp()
		return nil, err
	}
	return &Inside{b, grant, round}, nil
}

// goneRound stands for a "ready" that was there and has gone: kazoo's members remove it when they
// leave. Who is there counts as inside.
const goneRound = math.MaxInt64

// isInside reports whether a member is inside the round, which is the czxid of its "ready": it was
// there before that, or it has marked itself when it came in, by writing its data again.
func isInside(member *zk.Stat, round int64) bool { return member.Czxid < round || member.Version > 0 }

// awaitOpen waits until the barrier is open, and returns the round. A look at everything comes
// after every change of "ready" or of the members.
func (b *DoubleBarrier) awaitOpen(ctx context.Context, g *Grant) (round int64, err error) {
	l, made := g.node.lease, b.s.watches.number()
	for {
		news := b.s.link.news()
		var ready, list view
		err := b.s.link.again(ctx, l, func() (err error) {
			round, ready, list, err = b.look(ctx, g)
			return err
		})
		if gerr := g.Err(); gerr != nil {
			return 0, gerr
		}
		if errors.Is(err, errAgain) {
			if err := b.s.link.pause(ctx, 1); err != nil {
				return 0, err
			}
			continue
		}
		if round != 0 || err != nil {
			return round, err
		}
		if err := awaitAny(ctx, l, news, ready, list); err != nil {
			return 0, err
		}
		if err := g.Err(); err != nil {
			return 0, err
		}
		// A watch from before our node was made, of another Enter of this Session, may tell of a
		// "ready" from before it, too.
		if w := ready.watch; w.number > made && w.saw(zk.EventNodeCreated) {
			return b.opened(ctx, l) // it was there, even if somebody has removed it since
		}
	}
}

// look returns the round if the barrier is open for us, else 0; it opens it if enough are there.
func (b *DoubleBarrier) look(ctx context.Context, g *Grant) (round int64, ready, list view, err error) {
	// The version of the path's node counts the rounds: it goes up when "ready" is made, so that
	// nobody removes the "ready" of a later round than the one that was looked at.
	data, stat, err := b.s.link.conn.Get(b.path)
	if err != nil {
		return 0, ready, list, g.node.gone(err)
	}
	if ready, err = b.s.watches.exists(b.path + "/" + readyName); err != nil {
		return 0, ready, list, err
	}
	if list, err = b.s.watches.children(b.path); err != nil {
		return 0, ready, list, err
	}
	members := b.members(list.names)
	if ready.exists {
		round, err = b.join(g, members, stat.Version, ready.stat)
		return round, ready, list, err
	}
	own := g.node.name()
	if len(members) < b.n || !slices.Contains(members, own) {
		return 0, ready, list, nil
	}
	ops := []any{&zk.CheckVersionRequest{Path: b.path + "/" + own, Version: -1}}
	for _, m := range members {
		if m != own && len(ops) < b.n {
			ops = append(ops, &zk.CheckVersionRequest{Path: b.path + "/" + m, Version: -1})
		}
	}
	ops = append(ops,
		&zk.SetDataRequest{Path: b.path, Data: data, Version: stat.Version},
		&zk.CreateRequest{Path: b.path + "/" + readyName, Data: []byte{}, Acl: b.acl})
	if err := b.multi(ops...); err != nil {
		return 0, ready, list, err
	}
	round, err = b.opened(ctx, g.node.lease)
	return round, ready, list, err
}

// opened returns the round that has begun.
func (b *DoubleBarrier) opened(ctx context.Context, l *lease) (round int64, err error) {
	look := func() error {
		exists, stat, err := b.s.link.conn.Exists(b.path + "/" + readyName)
		if exists && err == nil {
			round = stat.Czxid
		}
		return err
	}
	if err := b.s.link.again(ctx, l, look); round != 0 || err != nil {
		return round, err
	}
	// An event does not tell the client how new it is. After it, the client may move to a server
	// that does not know of "ready" yet.
	if err := b.s.link.catchUp(ctx, l); err != nil {
		return 0, err
	}
	if err := b.s.link.again(ctx, l, look); round != 0 || err != nil {
		return round, err
	}
	return goneRound, nil
}

// join is look while there is a "ready": who was there before it is inside. Who comes later gets in
// as long as somebody is inside, and marks itself, for all others to see.
//
// The marking writes "ready", too, so that nobody removes it who has looked before that.
func (b *DoubleBarrier) join(g *Grant, members []string, version int32, ready *zk.Stat) (round int64, err error) {
	if g.token < ready.Czxid {
		return ready.Czxid, nil
	}
	own := g.node.name()
	for _, m := range append([]string{own}, members...) {
		exists, stat, err := b.s.link.conn.Exists(b.path + "/" + m)
		switch {
		case err != nil:
			return 0, err
		case !exists || !isInside(stat, ready.Czxid):
			continue
		case m == own:
			return ready.Czxid, nil // we have marked it, but the reply was lost
		}
		err = b.multi(
			&zk.CheckVersionRequest{Path: b.path, Version: version},
			&zk.CheckVersionRequest{Path: b.path + "/" + m, Version: -1},
			&zk.SetDataRequest{Path: b.path + "/" + readyName, Data: []byte{}, Version: -1},
			&zk.SetDataRequest{Path: b.path + "/" + own, Data: g.node.data, Version: -1})
		if err != nil {
			return 0, err
		}
		return ready.Czxid, nil
	}
	// It is left over.
	if err := b.remove(version, ready.Version); err != nil {
		return 0, err
	}
	return 0, errAgain
}

// multi is a multi that ends with errAgain if something has changed since the look that it is
// about: a member has gone, or somebody else was faster.
func (b *DoubleBarrier) multi(ops ...any) error {
	_, err := b.s.link.conn.Multi(ops...)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) {
		return errAgain
	}
	return err
}

// errAgain: the nodes have changed since the look at them.
var errAgain = errors.New("changed meanwhile")

func (b *DoubleBarrier) members(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == readyName })
}

// remove removes "ready", unless a round has begun since the path's node had that version, or
// somebody has come in since "ready" had its. That it is not there is no error.
func (b *DoubleBarrier) remove(version, ready int32) error {
	err := b.multi(
		&zk.CheckVersionRequest{Path: b.path, Version: version},
		&zk.DeleteRequest{Path: b.path + "/" + readyName, Version: ready})
	if errors.Is(err, errAgain) {
		return nil
	}
	return err
}

// Token returns the zxid with which the member entered.
func (in *Inside) Token() int64 { return in.grant.Token() }

// Lost returns a channel that is closed when the others may not count on the member any more, as
// Grant.Lost does.
func (in *Inside) Lost() <-chan struct{} { return in.grant.Lost() }

// Err returns nil while the member is certain to be inside, else why it is not; see Grant.Err.
func (in *Inside) Err() error { return in.grant.Err() }

// Leave takes the member out, and waits until all who are inside by then have left too, or have
// vanished. The member is out, or will be, whatever Leave returns: with an error of ctx the others
// may still be inside; ErrExpired and ErrSilent say that the member was lost while it was inside.
func (in *Inside) Leave(ctx context.Context) error {
	if err := in.leave(ctx); err != nil {
		return fmt.Errorf("recipes: leave %s: %w", in.b.path, err)
	}
	return nil
}

func (in *Inside) leave(ctx context.Context) error {
	b, l := in.b, in.grant.node.lease
	if err := in.grant.Err(); err != nil {
		in.grant.giveUp()
		return err
	}
	if err := in.grant.letGo(ctx); err != nil {
		return err
	}
	return b.s.link.do(ctx, func(ctx context.Context) error {
		// Order: our node first. As long as it is there others come in because of it.
		others, err := b.others(ctx, l)
		if err != nil {
			return err
		}
		for _, m := range others { // one at a time
			if err := b.awaitLeft(ctx, l, m, in.round); err != nil {
				return err
			}
		}
		return b.s.link.again(ctx, l, b.sweep)
	})
}

// others lists the members that are there, for certain.
func (b *DoubleBarrier) others(ctx context.Context, l *lease) (names []string, err error) {
	if err := b.s.link.catchUp(ctx, l); err != nil {
		return nil, err
	}
	err = b.s.link.again(ctx, l, func() (err error) {
		names, _, err = b.s.link.conn.Children(b.path)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return b.members(names), err
}

// awaitLeft waits until a member is not inside the round: it has gone; or it came later, and before
// it could come in all had left, so that it has removed the round's "ready".
func (b *DoubleBarrier) awaitLeft(ctx context.Context, l *lease, member string, round int64) error {
	for {
		news := b.s.link.news()
		var ready, m view
		over := false
		err := b.s.link.again(ctx, l, func() (err error) {
			if ready, err = b.s.watches.exists(b.path + "/" + readyName); err != nil {
				return err
			}
			// Order: after "ready". Who has marked itself did so while that was there.
			if m, err = b.s.watches.whileThere(b.path + "/" + member); err != nil {
				return err
			}
			over = !m.exists || !isInside(m.stat, round) && (!ready.exists || ready.stat.Czxid > round)
			return nil
		})
		if err != nil || over {
			return err
		}
		if err := awaitAny(ctx, l, news, ready, m); err != nil {
			return err
		}
	}
}

// sweep removes "ready" if nobody is inside.
func (b *DoubleBarrier) sweep() error {
	_, stat, err := b.s.link.conn.Get(b.path)
	if err == nil {
		var names []string
		if names, _, err = b.s.link.conn.Children(b.path); err == nil && slices.Equal(names, []string{readyName}) {
			return b.remove(stat.Version, -1)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
