package session

import (
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// setWatchesStep is how many paths of a setWatches are processed under one lock.
const setWatchesStep = 1000

// setWatchesInSteps executes a setWatches, which a client sends when it has connected again and
// which may have a hundred thousand paths, a step at a time, and gives up the state's lock between
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
	for !done && !s.gone.Load() {
		var step *wire.SetWatchesRequest
		step, done = nextStep(r)
		s.m.replica.View(func(store *znode.Store) {
			fits = s.setWatches(store, step) && fits
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
