package admin

import (
	"iter"
	"net/url"
	"slices"

	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// request is a request for a command. Its listings leave out the paths that ACLs hide from its
// caller.
type request struct {
	*Server
	caller door.Caller
	query  url.Values
}

// watches are the watches of the member's clients, sorted by session and path.
func (r *request) watches() []session.Watch {
	return seenBy(r, r.Sessions().Watches().Data(), func(w session.Watch) string { return w.Path })
}

// ephemerals are the ephemeral nodes of each session that has some.
func (r *request) ephemerals() iter.Seq2[wire.SessionID, []string] {
	var owners []wire.SessionID
	ops.EachSession(r, func(info znode.SessionInfo) {
		if info.Ephemerals > 0 {
			owners = append(owners, info.ID)
		}
	})
	slices.Sort(owners)
	owners = slices.Compact(owners)
	return func(yield func(wire.SessionID, []string) bool) {
		for _, id := range owners { // one at a time: the state is locked for each
			if paths := seenBy(r, ops.Ephemerals(r, id), func(path string) string { return path }); len(paths) > 0 &&
				!yield(id, paths) {
				return
			}
		}
	}
}

// seenStepBytes limits the bytes of paths that are judged under one lock of the state: each path is
// looked up some twenty times, and counts for seenPathBytes at least.
const (
	seenStepBytes = 64 << 10
	seenPathBytes = 128
)

// seenBy returns the elements of list with a path that the caller may know of.
func seenBy[T any](r *request, list []T, path func(T) string) (seen []T) {
	for len(list) > 0 {
		r.View(func(store *znode.Store) {
			for left := seenStepBytes; left > 0 && len(list) > 0; list = list[1:] {
				at := path(list[0])
				if left -= max(len(at), seenPathBytes); r.sees(store, at) {
					seen = append(seen, list[0])
				}
			}
		})
	}
	return seen
}

// sees reports whether the caller may know of a path: READ on its parent, or on the nearest node
// above that there is.
func (r *request) sees(store *znode.Store, path string) bool {
	if r.cfg.Auth.SkipACL || r.caller.IsSuper() {
		return true
	}
	return store.AccessAbove(path).Allows(r.caller.Identities, wire.PermRead)
}
