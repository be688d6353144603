package recipes

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// leave deletes what the place has made, and returns nil when it is certain that
// nothing is left and nothing will appear: for as long as the outcome of a
// request is unknown it goes on. Only the end of the Session stops it.
//
// ErrDeleted means that the node had been gone before.
func (p *place) leave() error {
	ctx := context.Background() // leave has no deadline; see above
	// A name that others' nodes have too must be ours for certain.
	p.doubt = p.doubt || p.single && p.node != "" && !p.owned
	first := true
	for attempt := 1; ; attempt++ {
		if p.single && p.lease != nil && p.over() == nil {
			// go-zookeeper keeps a request until it has a connection, and be it that of
			// the next session, when the node of this name is somebody else's.
			if _, err := p.s.ready(ctx); err != nil {
				return err
			}
		}
		nodes := []string{p.node}
		var err error
		switch {
		case p.doubt, p.named != nil && p.node != "" && p.over() == nil:
			nodes, err = p.find()
		case p.node == "", p.owned && p.over() != nil:
			return p.closed() // never made, or gone with its session
		}
		for i := 0; err == nil && i < len(nodes); i++ {
			err = p.remove(nodes[i])
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
				if first && !p.doubt && p.over() == nil {
					return ErrDeleted
				}
			}
		}
		first = false
		switch fateOf(err) {
		case fateDone:
			return nil
		case fateRefused:
			p.s.log.Error("lock node cannot be deleted, it stays until the session ends",
				"path", p.dir, "node", p.prefix, "err", err)
			return err
		case fateUnknown:
			p.doubt = p.doubt || p.single // by now it may be somebody else's
		case fateStrange:
			p.doubt = p.doubt || p.single
			p.s.log.Warn("lock node not deleted, trying again", "path", p.dir, "node", p.prefix, "err", err)
		}
		if err := p.s.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// remove deletes our node, and in the same moment what we have left beside it.
func (p *place) remove(node string) error {
	if p.delay != nil {
		return p.removeMarked(node)
	}
	return p.s.conn.Delete(node, -1)
}

// quit leaves all queues that the place is in.
func (p *place) quit() error {
	err := p.leave()
	if p.gate == nil {
		return err
	}
	gerr := p.gate.leave()
	if err == nil && !errors.Is(gerr, ErrDeleted) {
		err = gerr
	}
	return err
}

// closed is the error of a Session that has ended, else nil.
func (p *place) closed() error {
	select {
	case <-p.s.quit:
		return p.s.closed()
	default:
		return nil
	}
}
