package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// holding is an ephemeral node without a sequence number: who can make it has
// its name. The grant of it behaves as that of a lock.
type holding struct {
	s    *Session
	dir  string
	name string
	data []byte
	acl  []zk.ACL
	// lease is the session that the node has to be of; nil: whichever there is.
	lease *lease

	// create makes the node; nil: with a create. It is called again while its
	// outcome is unknown: zk.ErrNodeExists has to mean that the node exists.
	create func() error
}

// named is what a place has of such a node.
type named struct {
	path string
	free chan struct{} // closed when the name is no longer claimed
}

// hold makes the node. The error is ErrTaken if somebody else has the name.
//
// What tells our node from another's, when the reply to its creation is lost, is
// the session that owns it; and a name is claimed, so that nobody else in this
// Session makes one that looks the same.
func hold(ctx context.Context, h holding) (*Grant, error) {
	path := h.dir + "/" + h.name
	if !h.s.claim(path) {
		return nil, ErrTaken
	}
	p := &place{s: h.s, dir: h.dir, prefix: h.name, data: h.data, acl: h.acl}
	p.named = &named{path: path, free: make(chan struct{})}
	g, err := call(ctx, h.s, func(ctx context.Context) (*Grant, error) {
		g, err := p.hold(ctx, path, h.lease, h.create)
		after := func() { g.keep() }
		if err != nil {
			after = func() { p.leave() }
		}
		ok := h.s.spawn(func() {
			after()
			h.s.unclaim(path)
			close(p.named.free)
		})
		if !ok && err == nil {
			err = h.s.closed()
		}
		return g, err
	}, (*Grant).giveUp)
	return g, err
}

func (p *place) hold(ctx context.Context, path string, of *lease, create func() error) (_ *Grant, err error) {
	if p.lease, err = p.s.ready(ctx); err != nil {
		return nil, err
	}
	if of != nil && p.lease != of {
		return nil, cmp.Or(p.s.over(of), ErrExpired)
	}
	if create == nil {
		create = func() error {
			_, err := p.s.conn.Create(path, p.data, zk.FlagEphemeral, p.acl)
			return err
		}
	}
	if err := p.createOwn(ctx, path, create); err != nil {
		return nil, err
	}
	if err := p.watchOwn(ctx); err != nil {
		return nil, err
	}
	g := newGrant(p, p.dir)
	if err := p.lease.admit(ctx, g); err != nil {
		return nil, err
	}
	return g, nil
}

// createOwn makes the node. A create is the barrier of the one before it: its
// answer settles what became of that.
func (p *place) createOwn(ctx context.Context, path string, create func() error) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent := time.Now()
		err := create()
		switch {
		case err == nil:
			p.node = path
			p.doubt = false
			p.s.mu.Lock()
			p.lease.proveLocked(sent)
			p.s.mu.Unlock()
			return nil
		case errors.Is(err, zk.ErrNodeExists) && !p.doubt:
			return ErrTaken
		case errors.Is(err, zk.ErrNodeExists):
			owner, err := p.owner(ctx, path)
			if err != nil {
				return err
			}
			if p.ours(owner) {
				p.node, p.doubt = path, false
				return nil
			}
			if owner != 0 {
				p.doubt = false
				return ErrTaken
			}
			continue // it has gone
		case errors.Is(err, zk.ErrNoNode):
			p.doubt = false
			if err := p.makeDir(ctx, p.dir); err != nil {
				return err
			}
			continue
		case fateOf(err) == fateRefused:
			p.doubt = false
			return err
		}
		p.doubt = true
		if fateOf(err) == fateStrange {
			return err
		}
		if err := p.s.pause(ctx, attempt); err != nil {
			return err
		}
		if err := p.over(); err != nil {
			return err
		}
	}
}

// owner reads which session owns a node; 0 if there is no node.
func (p *place) owner(ctx context.Context, path string) (owner int64, err error) {
	err = p.s.again(ctx, nil, func() error {
		exists, stat, err := p.s.conn.Exists(path)
		if err == nil && exists {
			owner = stat.EphemeralOwner
		}
		return err
	})
	return owner, err
}

// ours reports whether a node that this owner has is the one that we made: under
// the session that we began with, or under the next one, if the request was
// carried over into that.
func (p *place) ours(owner int64) bool {
	return owner != 0 && (owner == p.lease.id || owner == p.s.conn.SessionID())
}

// seekOwn looks for our node, for certain: see find. It is also how the node is
// looked for before it is deleted: somebody who deletes others' nodes may have
// deleted ours, and by now it may be another's.
func (p *place) seekOwn() ([]string, error) {
	path := p.named.path
	if err := p.s.writeNothing(); err != nil {
		return nil, err
	}
	exists, stat, err := p.s.conn.Exists(path)
	if err != nil || !exists || !p.ours(stat.EphemeralOwner) {
		return nil, err
	}
	return []string{path}, nil
}

// claim reserves a path within this Session, and reports false if it is.
func (s *Session) claim(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[path] {
		return false
	}
	if s.claims == nil {
		s.claims = make(map[string]bool)
	}
	s.claims[path] = true
	return true
}

func (s *Session) unclaim(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, path)
}

// letGo ends a grant and waits until its node is gone. See Grant.Unlock for what
// it returns.
func (g *Grant) letGo(ctx context.Context) error {
	g.giveUp()
	select {
	case <-g.gone:
	case <-ctx.Done():
		select {
		case <-g.gone:
		default:
			return fmt.Errorf("goes on in the background: %w", ctx.Err())
		}
	}
	if g.p.named != nil {
		<-g.p.named.free // at once
	}
	g.p.s.mu.Lock()
	defer g.p.s.mu.Unlock()
	if g.err != ErrReleased {
		return g.err
	}
	return g.leaveErr
}
