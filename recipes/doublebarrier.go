package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// DoubleBarrier lets a number of members begin together and end together: Enter
// returns when that many have entered, Leave when those that were inside have
// left.
//
// The nodes are those of Curator's DistributedDoubleBarrier and of kazoo's
// DoubleBarrier, which can take part: an ephemeral child of the path for each
// member, and a child "ready", from when enough have entered.
//
// The number is a threshold, no limit: who enters while the round goes on gets in
// at once, as with Curator.
//
// # Members that vanish
//
// A member whose session ends before enough have entered no longer counts: "ready"
// is made in a multi that checks that all those who were counted are still there,
// so nobody is let in by a member that has gone. (Curator and kazoo do not check.)
// A member that vanishes inside is not waited for when the others leave: it may
// still be at work, and only a fencing token or its own Lost can stop it. When all
// vanish, "ready" stays behind; the next one to enter sees that it belongs to
// nobody who is there, and removes it. (Curator's and kazoo's take it for theirs.)
//
// # With Curator and kazoo
//
// Curator's leave returns early, when one other member is left inside; kazoo's
// removes "ready" before all have seen it, so that a member which is disconnected
// just then waits for ever. What is promised here holds where all members are of
// this package; with others, for as long as they keep to it.
type DoubleBarrier struct {
	s    *Session
	path string
	n    int
	acl  []zk.ACL
}

// readyName is the child that stands for an open barrier.
const readyName = "ready"

// NewDoubleBarrier returns the barrier on a path, for n members. acl is for the
// nodes that are made; nil stands for [Config].ACL.
func NewDoubleBarrier(s *Session, path string, n int, acl []zk.ACL) *DoubleBarrier {
	return &DoubleBarrier{s: s, path: path, n: max(n, 1), acl: s.aclOr(acl)}
}

// Inside is a member's stay in a DoubleBarrier.
type Inside struct {
	b     *DoubleBarrier
	grant *Grant
}

// Enter waits until enough members have entered. data is stored in the member's
// node (kazoo has an identifier there). When it returns an error the member's
// node is gone, or goes in the background.
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
	_, err = call(ctx, b.s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.awaitOpen(ctx, grant)
	}, nil)
	if err == nil {
		err = grant.Err()
	}
	if err != nil {
		grant.giveUp()
		return nil, err
	}
	return &Inside{b, grant}, nil
}

// awaitOpen waits until the barrier is open. A look at everything comes after every
// change of "ready" or of the members.
func (b *DoubleBarrier) awaitOpen(ctx context.Context, g *Grant) error {
	l := g.p.lease
	for {
		news := b.s.news()
		var open bool
		var views map[string]view
		err := b.s.again(ctx, l, func() (err error) {
			open, views, err = b.look(g)
			return err
		})
		if errors.Is(err, errAgain) {
			if err := b.s.pause(ctx, 1); err != nil {
				return err
			}
			continue
		}
		if open || err != nil {
			return err
		}
		if err := awaitAny(ctx, l, news, views); err != nil {
			return err
		}
		if err := g.Err(); err != nil {
			return err
		}
		if views[readyName].watch.saw(zk.EventNodeCreated) {
			// It was there, even if somebody has removed it since: kazoo's
			// members do when they leave.
			return nil
		}
	}
}

// look reports whether the barrier is open, and opens it if enough are there.
func (b *DoubleBarrier) look(g *Grant) (open bool, views map[string]view, err error) {
	// The version of the path's node counts the rounds: it goes up when "ready"
	// is made, so that nobody removes the "ready" of a later round than the one
	// that was looked at.
	round, stat, err := b.s.conn.Get(b.path)
	if err != nil {
		return false, nil, g.p.gone(err)
	}
	ready, err := b.s.lookExists(b.path + "/" + readyName)
	if err != nil {
		return false, nil, err
	}
	list, err := b.s.lookChildren(b.path)
	if err != nil {
		return false, nil, err
	}
	views = map[string]view{readyName: ready, "": list}
	members := b.members(list.names)
	if ready.exists {
		if g.token < ready.stat.Czxid {
			return true, views, nil
		}
		for _, m := range members { // we come late, or it is left over
			exists, stat, err := b.s.conn.Exists(b.path + "/" + m)
			if err != nil {
				return false, nil, err
			}
			if exists && stat.Czxid < ready.stat.Czxid {
				return true, views, nil
			}
		}
		if err := b.remove(stat.Version); err != nil {
			return false, nil, err
		}
		return false, nil, errAgain
	}
	own := g.p.name()
	if len(members) < b.n || !slices.Contains(members, own) {
		return false, views, nil
	}
	ops := []any{&zk.CheckVersionRequest{Path: b.path + "/" + own, Version: -1}}
	for _, m := range members {
		if m != own && len(ops) < b.n {
			ops = append(ops, &zk.CheckVersionRequest{Path: b.path + "/" + m, Version: -1})
		}
	}
	ops = append(ops,
		&zk.SetDataRequest{Path: b.path, Data: round, Version: stat.Version},
		&zk.CreateRequest{Path: b.path + "/" + readyName, Data: []byte{}, Acl: b.acl})
	if _, err = b.s.conn.Multi(ops...); err == nil {
		return true, views, nil
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) {
		err = errAgain // a member has gone, or somebody else was faster
	}
	return false, nil, err
}

// errAgain: what was looked at has changed in between.
var errAgain = errors.New("changed meanwhile")

func (b *DoubleBarrier) members(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == readyName })
}

// remove removes "ready", unless a round has begun since the path's node had that
// version. That it is not there is no error.
func (b *DoubleBarrier) remove(version int32) error {
	_, err := b.s.conn.Multi(
		&zk.CheckVersionRequest{Path: b.path, Version: version},
		&zk.DeleteRequest{Path: b.path + "/" + readyName, Version: -1})
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil
	}
	return err
}

// Token returns the zxid with which the member entered.
func (in *Inside) Token() int64 { return in.grant.Token() }

// Lost returns a channel that is closed when the others may not count on the
// member any more, as Grant.Lost does.
func (in *Inside) Lost() <-chan struct{} { return in.grant.Lost() }

// Err returns nil while the member is certain to be inside, else why it is not;
// see Grant.Err.
func (in *Inside) Err() error { return in.grant.Err() }

// Leave takes the member out, and waits until all who are inside by then have left
// too, or have vanished. The member is out, or will be, whatever Leave returns:
// with an error of ctx the others may still be inside; ErrExpired and ErrSilent say
// that the member was lost while it was inside.
func (in *Inside) Leave(ctx context.Context) error {
	if err := in.leave(ctx); err != nil {
		return fmt.Errorf("recipes: leave %s: %w", in.b.path, err)
	}
	return nil
}

func (in *Inside) leave(ctx context.Context) error {
	b, l := in.b, in.grant.p.lease
	if err := in.grant.Err(); err != nil {
		in.grant.giveUp()
		return err
	}
	others, err := call(ctx, b.s, func(ctx context.Context) (names []string, err error) {
		if err := b.s.catchUp(ctx, l); err != nil {
			return nil, err
		}
		err = b.s.again(ctx, l, func() (err error) {
			names, _, err = b.s.conn.Children(b.path)
			return err
		})
		return b.members(names), err
	}, nil)
	if err != nil {
		in.grant.giveUp()
		return err
	}
	if err := in.grant.letGo(ctx); err != nil {
		return err
	}
	_, err = call(ctx, b.s, func(ctx context.Context) (struct{}, error) {
		for _, m := range others { // one watch at a time
			err := b.s.until(ctx, l,
				func() (view, error) { return b.s.lookUntilGone(b.path + "/" + m) },
				func(v view) (bool, error) { return !v.exists, nil })
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, b.s.again(ctx, l, b.sweep)
	}, nil)
	return err
}

// sweep removes "ready" if nobody is inside.
func (b *DoubleBarrier) sweep() error {
	_, stat, err := b.s.conn.Get(b.path)
	if err == nil {
		var names []string
		if names, _, err = b.s.conn.Children(b.path); err == nil && slices.Equal(names, []string{readyName}) {
			return b.remove(stat.Version)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
