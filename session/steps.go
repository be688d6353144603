package session

import (
	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// executeLong executes a read that takes long: its answer has admission.HeavyBytes or more, or it
// would keep the state locked for long and releases the lock between two steps. It returns false,
// and has done nothing, for other requests. Only Submit's goroutine calls it, when all
// requests before are answered.
//
// Reads with long answers take turns: each deletion in the state is noted in all listings, and
// those who ask for little would wait for a processor behind all who ask for much.
func (s *Session) executeLong(p *pending) bool {
	if r, ok := p.record.(*wire.SetWatchesRequest); ok {
		s.setWatchesInSteps(p, r)
		return true
	}
	if !isLong(p.req.Op) {
		return false
	}
	bytes, fits := 0, false
	s.m.replica.View(func(store *znode.Store) { bytes, fits = s.answerSize(store, p) })
	if !fits || bytes < admission.HeavyBytes {
		return false
	}
	s.out.wake()
	turn := s.m.answering
	if turn.Acquire(s.m.ctx, 1) != nil {
		return true // the member stops
	}
	defer turn.Release(1)
	if r, ok := p.record.(*wire.PathWatchRequest); !ok || !s.listInSteps(p, r) {
		s.m.replica.View(func(store *znode.Store) { s.execute(store, p) })
	}
	return true
}

// listStep is how many children are listed under one lock.
const listStep = 5000

// listInSteps executes getChildren and getChildren2 of a node with more children than that; false
// if it has fewer. What it answers is the state at its last step, in which it sets the watch, too;
// what fires that before the reply is made waits for the reply.
func (s *Session) listInSteps(p *pending, r *wire.PathWatchRequest) bool {
	for !s.ended.Load() {
		var l *znode.Listing
		s.m.replica.View(func(store *znode.Store) {
			if stat, ok := store.Node(r.Path); ok && stat.NumChildren > listStep {
				l = store.List(r.Path)
			}
		})
		if l == nil {
			return false
		}
		if s.list(p, r, l) {
			break
		}
	}
	return true
}

// list executes a request with a listing; false if the node was deleted meanwhile.
func (s *Session) list(p *pending, r *wire.PathWatchRequest, l *znode.Listing) bool {
	var done, lost bool
	var h wire.ReplyHeader
	var stat wire.Stat
	bytes := 0
	for !done && !lost {
		s.m.replica.View(func(store *znode.Store) {
			if done, lost = l.Step(store, listStep); !done {
				lost = lost || s.ended.Load()
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
		return false
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
	if code == wire.CodeOK && r.Watch && !s.m.watches.add(s, r.Path, 0, standard) {
		code = wire.CodeBadArguments
	}
	return stat, bytes, code
}

// setWatchesStep is how many paths of a setWatches are processed under one lock.
const setWatchesStep = 500

// setWatchesInSteps executes a setWatches, which a client sends when it has connected again and
// which may have a hundred thousand paths, a step at a time, and releases the state's lock between
// two steps.
//
// Each path is compared, and its watch set, under one lock: a change before it gives an event at
// once, a change after it fires the watch. So no event is lost, and none is sent twice that would
// not also be sent twice if all were one step. Between two steps a watch may fire for a change that
// is later than a change of a path that has not been compared yet. Therefore events that fire wait
// until the last step, and are sent before the reply: the client sees no event before an earlier
// one (promise C3).
func (s *Session) setWatchesInSteps(p *pending, r *wire.SetWatchesRequest) {
	s.out.holdEvents()
	fits, done := true, false
	for !done && !s.ended.Load() {
		var step *wire.SetWatchesRequest
		step, done = nextStep(r)
		s.m.replica.View(func(store *znode.Store) {
			fits = s.setWatches(store, step, p.ids) && fits
			if !done {
				return
			}
			s.out.releaseEvents()
			p.record = &wire.SetWatchesRequest{} // nothing is left of it
			if !fits {
				// a client would not look at an error here
				p.code, p.last = wire.CodeBadArguments, true
			}
			s.execute(store, p)
		})
	}
	s.out.releaseEvents() // unless it was done, the connection has ended
}

// nextStep takes the first setWatchesStep paths off r; done says that none are left.
func nextStep(r *wire.SetWatchesRequest) (step *wire.SetWatchesRequest, done bool) {
	step = &wire.SetWatchesRequest{V2: r.V2, RelativeZxid: r.RelativeZxid}
	room := setWatchesStep
	take := func(from *[]string) []string {
		n := min(room, len(*from))
		paths := (*from)[:n]
		*from, room = (*from)[n:], room-n
		return paths
	}
	step.Data, step.Exist, step.Child = take(&r.Data), take(&r.Exist), take(&r.Child)
	step.Persistent, step.PersistentRecursive = take(&r.Persistent), take(&r.PersistentRecursive)
	left := len(r.Data) + len(r.Exist) + len(r.Child) + len(r.Persistent) + len(r.PersistentRecursive)
	return step, left == 0
}
