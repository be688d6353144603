package session

import (
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// executeInSteps executes a request that would keep the state locked for long, and gives up the
// lock between two steps. It returns false, and has done nothing, if the request is none of these.
// Only Submit's goroutine calls it, when all before it is answered.
func (s *Session) executeInSteps(p *pending) bool {
	switch r := p.record.(type) {
	case *wire.SetWatchesRequest:
		s.setWatchesInSteps(p, r)
		return true
	case *wire.PathWatchRequest:
		return (p.req.Op == wire.OpGetChildren || p.req.Op == wire.OpGetChildren2) && s.listInSteps(p, r)
	}
	return false
}

// listStep is how many children are listed under one lock.
const listStep = 5000

// listInSteps executes getChildren and getChildren2 of a node with many children. What it answers
// is the state at its last step, in which it sets the watch, too; what fires that before the reply
// is made waits for the reply.
func (s *Session) listInSteps(p *pending, r *wire.PathWatchRequest) bool {
	var l *znode.Listing
	s.m.replica.View(func(store *znode.Store) {
		if stat, ok := store.Node(r.Path); !ok || stat.NumChildren <= listStep {
			return
		}
		if _, code := s.measure(store, p); code == wire.CodeOK {
			l = store.List(r.Path)
		}
	})
	if l == nil {
		return false
	}
	var done, lost bool
	var h wire.ReplyHeader
	var stat wire.Stat
	bytes := 0
	for !done && !lost {
		s.m.replica.View(func(store *znode.Store) {
			if done, lost = l.Step(store, listStep); !done {
				lost = lost || s.gone.Load()
			}
			if lost || done {
				l.Close()
			}
			if done {
				h = wire.ReplyHeader{Xid: p.req.Xid, Zxid: store.Zxid()}
				stat, bytes, h.Err = s.listed(store, p, r)
				s.out.holdEvents()
			}
		})
	}
	if lost {
		return s.gone.Load() || s.listInSteps(p, r)
	}
	var body wire.Record = wire.GetChildrenResponse{Children: l.Names()}
	if p.req.Op == wire.OpGetChildren2 {
		body = wire.GetChildren2Response{Children: l.Names(), Stat: stat}
	}
	s.reply(p, h, body, bytes)
	s.out.releaseEvents()
	return true
}

// listed is what belongs to the last step of listInSteps: the permission, the size of the answer,
// and the watch.
func (s *Session) listed(store *znode.Store, p *pending, r *wire.PathWatchRequest) (wire.Stat, int, wire.Code) {
	bytes, code := s.measure(store, p)
	if code != wire.CodeOK {
		return wire.Stat{}, 0, code
	}
	stat, code := store.Exists(r.Path, p.ids)
	if code == wire.CodeOK && r.Watch && !s.m.watches.addChild(s, r.Path, standard) {
		code = wire.CodeBadArguments
	}
	return stat, bytes, code
}
