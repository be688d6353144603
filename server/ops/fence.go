package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/server/ops/door"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// FenceAnswer is the answer to GET /fence?lock=PATH&token=N: whether the holder with this fencing
// token has the lock now. A resource in any language can query it before it serves the holder. The
// answer is true of a moment between question and answer; a resource that also remembers the
// largest token it has seen is safe after that moment too.
type FenceAnswer struct {
	Lock  string `json:"lock"`
	Token int64  `json:"token"` // the zxid that created the holder's node
	Valid bool   `json:"valid"`
	// Reason says why it is not valid.
	Reason string `json:"reason,omitempty"`
	// Node and Session are of the token's node, if it is still in the queue.
	Node    string `json:"node,omitempty"`
	Session string `json:"session,omitempty"`
	// Newest is the token of the first holder, 0 if nobody holds the lock.
	Newest int64 `json:"newest"`
	// Zxid is the newest change that the answer takes into account.
	Zxid string `json:"zxid"`

	steps int // that judge takes for a lock
}

// serveFence answers 200 if the token is valid, 409 if it is not, 403 if the lock may not be read,
// 400 for a question that makes no sense, and 503 if this member cannot prove anything, because it
// has no leader.
func (e *Endpoints) serveFence(w http.ResponseWriter, r *http.Request) {
	lock, token, err := fenceQuestion(r)
	if err != nil {
		door.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), door.Timeout)
	defer cancel()
	if err := e.Sessions().Sync(ctx); err != nil {
		door.WriteError(w, http.StatusServiceUnavailable, "this member has no leader, so it cannot know")
		return
	}
	answer := FenceAnswer{Lock: lock, Token: token}
	ids := door.CallerOf(r).Identities
	if e.Config().Auth.SkipACL {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	switch err := answer.judge(ctx, e.View, e.fences, ids); {
	case errors.Is(err, errNoPermission):
		door.WriteError(w, http.StatusForbidden, "READ on "+lock+" is needed: Authorization: digest user:password")
	case err != nil:
		door.WriteError(w, http.StatusServiceUnavailable, "the lock has too many contenders to judge them in time")
	case answer.Valid:
		door.WriteJSON(w, http.StatusOK, answer)
	default:
		door.WriteJSON(w, http.StatusConflict, answer)
	}
}

func fenceQuestion(r *http.Request) (lock string, token int64, err error) {
	q := r.URL.Query()
	lock = q.Get("lock")
	if !strings.HasPrefix(lock, "/") {
		return "", 0, fmt.Errorf("lock must be the path of a lock, not %q", lock)
	}
	token, err = strconv.ParseInt(q.Get("token"), 0, 64)
	if err != nil || token <= 0 {
		return "", 0, fmt.Errorf("token must be a fencing token, a positive number, not %q", q.Get("token"))
	}
	return lock, token, nil
}

// fenceStep is the number of contenders that are read under one lock of the state.
const fenceStep = 1000

// errNoPermission says that the lock may not be read.
var errNoPermission = errors.New("READ on the lock is needed")

// judge fills in the answer: package locknode says who holds. The state is locked for a step at a
// time, since anybody can make a million contenders. All steps together are true of the moment of
// the last: whoever is before the token's node in the queue was made before it, and so is among the
// names from the first step on. A lock that takes several steps needs the one element of turns.
// Errors: errNoPermission, ctx.Err.
func (a *FenceAnswer) judge(ctx context.Context, view func(func(*znode.Store)), turns chan struct{},
	ids []znode.Identity) error {
	locks, err := a.begin(view, ids)
	if len(locks) == 0 {
		return err
	}
	var verdict locknode.Verdict
	for _, lock := range locks {
		if verdict, err = a.judgeLock(ctx, view, turns, ids, lock); err != nil {
			return err
		}
		if a.Reason != "" || verdict.Own != nil {
			break
		}
	}
	if a.Reason == "" {
		a.fill(verdict)
	}
	view(func(store *znode.Store) { err = a.confirm(store, ids) })
	return err
}

// judgeLock judges the contenders in the directories of a lock.
func (a *FenceAnswer) judgeLock(ctx context.Context, view func(func(*znode.Store)), turns chan struct{},
	ids []znode.Identity, lock string,
) (v locknode.Verdict, err error) {
	var listings []fenceListing
	view(func(store *znode.Store) { listings, err = a.listings(store, lock, ids) })
	defer view(func(*znode.Store) {
		for _, l := range listings {
			l.Close()
		}
	})
	if err != nil {
		return v, err
	}
	if a.steps > 1 {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
	extract := locknode.NewExtract(strings.TrimSuffix(lock, "/"), a.Token)
	for _, l := range listings {
		names, err := a.list(ctx, view, l)
		if err != nil || a.Reason != "" {
			return v, err
		}
		for len(names) > 0 {
			if ctx.Err() != nil {
				return v, ctx.Err()
			}
			step := names[:min(fenceStep, len(names))]
			names = names[len(step):]
			a.look(view, l.dir, step, extract)
		}
	}
	return extract.Verdict(), nil
}

// fenceListing lists the children of a directory, in which there are contenders of a lock.
type fenceListing struct {
	*znode.Listing
	dir string
}

// listings begins to list the directories of a lock: the queues of its semaphores first, as
// locknode.Extract wants them.
func (a *FenceAnswer) listings(store *znode.Store, lock string, ids []znode.Identity) (list []fenceListing, err error) {
	a.steps = 0
	for _, dir := range locknode.Directories(lock, isSemaphore(store)(lock)) {
		switch _, stat, code := store.Get(dir, ids); code {
		case wire.CodeOK:
			list = append(list, fenceListing{store.List(dir), dir})
			a.steps += 1 + int(stat.NumChildren)/fenceStep
		case wire.CodeNoAuth:
			// The queue beside a lock is kazoo's, which makes no lease before it may have it.
			// Nobody who may not read that queue is told whether it is there.
			if dir == lock || strings.HasPrefix(dir, lock+"/") {
				return list, errNoPermission
			}
		}
	}
	if a.steps == len(list) {
		a.steps = 1 // each of them is short
	}
	return list, nil
}

func isSemaphore(store *znode.Store) func(path string) bool {
	return func(path string) bool {
		_, is := store.Node(locknode.LeasesPath(path))
		return is
	}
}

// look adds the contenders among the children of a directory that are still there.
func (a *FenceAnswer) look(view func(func(*znode.Store)), dir string, names []string, extract *locknode.Extract) {
	type found struct {
		name string
		data []byte
		stat wire.Stat
	}
	var all []found
	a.step(view, func(store *znode.Store) {
		for _, name := range names {
			if !locknode.Contends(name) {
				continue
			}
			data, stat, code := store.Get(childPath(dir, name), superIdentities)
			if code == wire.CodeOK && stat.EphemeralOwner != 0 {
				all = append(all, found{name, data[:min(len(data), fenceData)], stat})
			}
		}
	})
	for _, f := range all {
		extract.Add(locknode.New(strings.TrimSuffix(dir, "/"), f.name, int64(f.stat.EphemeralOwner),
			time.UnixMilli(f.stat.Ctime), int64(f.stat.Czxid), f.data))
	}
}

// fenceData is the length of a node's data that is read: enough for the data of package recipes.
const fenceData = 1 << 10

var superIdentities = []znode.Identity{{Scheme: "super"}}

// step is a View of a step. After one of several it rests for as long as that took: anybody can ask
// about a lock that takes many, and others need the processor, too.
func (a *FenceAnswer) step(view func(func(*znode.Store)), f func(*znode.Store)) {
	began := time.Now()
	view(f)
	if a.steps > 1 {
		time.Sleep(time.Since(began))
	}
}

// begin returns the locks that the question may mean; none if the answer is known already, because
// there is no such lock, or the lock is one node, or with errNoPermission.
func (a *FenceAnswer) begin(view func(func(*znode.Store)), ids []znode.Identity) (locks []string, err error) {
	view(func(store *znode.Store) {
		a.Zxid = Hex(store.Zxid())
		_, stat, code := store.Get(a.Lock, ids)
		_, name := locknode.Split(a.Lock)
		isNode := stat.EphemeralOwner != 0 && stat.NumChildren == 0
		switch {
		case code == wire.CodeNoAuth:
			err = errNoPermission
		case code != wire.CodeOK:
			a.Reason = noSuchLock
		case isNode && !locknode.Contends(name): // a lock that is one node
			a.Newest = int64(stat.Czxid)
			if a.Valid = a.Newest == a.Token; a.Valid {
				a.Node, a.Session = a.Lock, Hex(stat.EphemeralOwner)
			} else {
				a.Reason = "another has the lock"
			}
		default:
			locks = locknode.Named(a.Lock, isNode, isSemaphore(store))
		}
	})
	return locks, err
}

// list returns the names of the children of a directory.
func (a *FenceAnswer) list(ctx context.Context, view func(func(*znode.Store)),
	l fenceListing) (names []string, err error) {
	for done, lost := false, false; !done; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a.step(view, func(store *znode.Store) {
			if done, lost = l.Step(store, fenceStep); done && !lost {
				names = slices.Clone(l.Names())
			}
		})
		if lost {
			a.Reason = noSuchLock
			return nil, nil
		}
	}
	return names, nil
}

const (
	noSuchLock = "there is no such lock: nobody holds it"
	noSuchNode = "no node of the lock has this token: its holder has released the lock, or lost it"
)

// confirm is the last step: the lock may still be read, and a node that was found to be valid is
// still there.
func (a *FenceAnswer) confirm(store *znode.Store, ids []znode.Identity) error {
	a.Zxid = Hex(store.Zxid())
	if _, _, code := store.Get(a.Lock, ids); code == wire.CodeNoAuth {
		return errNoPermission
	}
	if st, ok := store.Node(a.Node); a.Valid && (!ok || int64(st.Czxid) != a.Token) {
		a.Valid, a.Node, a.Session, a.Reason = false, "", "", noSuchNode
	}
	return nil
}

// fill fills in the answer that a verdict is.
func (a *FenceAnswer) fill(v locknode.Verdict) {
	if v.Holds != nil {
		a.Newest = v.Holds.Token
	}
	own := v.Own
	if own == nil {
		a.Reason = noSuchNode
		return
	}
	a.Node, a.Session = own.Path+"/"+own.Node, Hex(wire.SessionID(own.Session))
	switch a.Valid = own.Held; {
	case own.Held:
	case own.Kind == locknode.KindLease:
		a.Reason = "its owner waits for a lease"
	case own.MayHold && v.Behind != nil:
		a.Reason = "its owner is behind " + v.Behind.Node + ", for which its library may not wait: the lock may have " +
			"two holders"
	case v.Behind != nil:
		a.Reason = "its owner waits for the lock, behind " + v.Behind.Node
	default:
		a.Reason = "its owner waits for the lock"
	}
}

func childPath(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }
