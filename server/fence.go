package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// fenceAnswer is the answer to GET /fence?lock=PATH&token=N: whether the holder with this fencing
// token has the lock now. A resource in any language can query it before it serves the holder. The
// answer is true of a moment between question and answer; a resource that also remembers the
// largest token it has seen is safe after that moment too.
type fenceAnswer struct {
	Lock  string `json:"lock"`
	Token int64  `json:"token"` // the zxid that created the holder's node
	Valid bool   `json:"valid"`
	// Reason says why it is not valid.
	Reason string `json:"reason,omitempty"`
	// Node and Session are of the token's node, if it is still in the queue.
	Node    string `json:"node,omitempty"`
	Session string `json:"session,omitempty"`
	// Newest is the token at the front of the queue, 0 if the queue is empty.
	Newest int64 `json:"newest"`
	// Zxid is the newest change that the answer takes into account.
	Zxid string `json:"zxid"`

	steps int // that judge takes for the lock
}

// serveFence answers 200 if the token is valid, 409 if it is not, 403 if the lock may not be read,
// 400 for a question that makes no sense, and 503 if this member cannot prove anything, because it
// has no leader.
func (s *Server) serveFence(w http.ResponseWriter, r *http.Request) {
	lock, token, err := fenceQuestion(r)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	if err := s.sessions.Sync(ctx); err != nil {
		writeError(w, http.StatusServiceUnavailable, "this member has no leader, so it cannot know")
		return
	}
	answer := fenceAnswer{Lock: lock, Token: token}
	ids := s.httpIdentities(r)
	if s.cfg.SkipACL {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	switch err := answer.judge(ctx, s.replica.View, s.fences, ids); {
	case errors.Is(err, errNoPermission):
		writeError(w, http.StatusForbidden, "READ on "+lock+" is needed: Authorization: digest user:password")
	case err != nil:
		writeError(w, http.StatusServiceUnavailable, "the lock has too many contenders to judge them in time")
	case answer.Valid:
		writeJSON(w, http.StatusOK, answer)
	default:
		writeJSON(w, http.StatusConflict, answer)
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

// fenceStep is how many contenders are looked at under one lock of the state.
const fenceStep = 1000

// errNoPermission says that the lock may not be read.
var errNoPermission = errors.New("READ on the lock is needed")

// judge fills in the answer. The state is locked for a step at a time, since anybody can make a
// million contenders. All steps together are true of the moment of the last: whoever is before the
// token's node in the queue was made before it, and so is among the names from the first step on. A
// lock that takes several steps needs the one element of turns. Errors: errNoPermission, that of
// ctx.
func (a *fenceAnswer) judge(ctx context.Context, view func(func(*znode.Store)), turns chan struct{}, ids []znode.Identity) error {
	l, err := a.begin(view, ids)
	if l == nil {
		return err
	}
	if a.steps > 1 {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done(): // list sees it
		}
	}
	names, err := a.list(ctx, view, l)
	if err != nil || a.Reason != "" {
		return err
	}
	queue := fenceQueue{}
	for left := names; len(left) > 0 && ctx.Err() == nil; left = left[min(fenceStep, len(left)):] {
		a.step(view, func(store *znode.Store) {
			for _, name := range left[:min(fenceStep, len(left))] {
				queue.add(store, a.Lock, name)
			}
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.judgeQueue(queue)
	view(func(store *znode.Store) { err = a.confirm(store, ids) })
	return err
}

// step is a View of a step. After one of several it rests for as long as that took: anybody can ask
// about a lock that takes many, and others need the processor, too.
func (a *fenceAnswer) step(view func(func(*znode.Store)), f func(*znode.Store)) {
	began := time.Now()
	view(f)
	if a.steps > 1 {
		time.Sleep(time.Since(began))
	}
}

// begin returns a listing of the lock's children; nil if the answer is known already, because there
// is no such lock, or the lock is one node, or with errNoPermission.
func (a *fenceAnswer) begin(view func(func(*znode.Store)), ids []znode.Identity) (l *znode.Listing, err error) {
	view(func(store *znode.Store) {
		a.Zxid = fmt.Sprintf("0x%x", uint64(store.Zxid()))
		_, stat, code := store.Get(a.Lock, ids)
		switch {
		case code == wire.CodeNoAuth:
			err = errNoPermission
		case code != wire.CodeOK:
			a.Reason = noSuchLock
		case stat.EphemeralOwner != 0 && stat.NumChildren == 0: // a lock that is one node
			a.Newest = int64(stat.Czxid)
			if a.Valid = a.Newest == a.Token; a.Valid {
				a.Node, a.Session = a.Lock, idText(wire.SessionID(stat.EphemeralOwner))
			} else {
				a.Reason = "another has the lock"
			}
		default:
			l, a.steps = store.List(a.Lock), 1+int(stat.NumChildren)/fenceStep
		}
	})
	return l, err
}

// list returns the names of the lock's children, and closes the listing.
func (a *fenceAnswer) list(ctx context.Context, view func(func(*znode.Store)), l *znode.Listing) (names []string, err error) {
	defer view(func(*znode.Store) { l.Close() })
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
func (a *fenceAnswer) confirm(store *znode.Store, ids []znode.Identity) error {
	a.Zxid = fmt.Sprintf("0x%x", uint64(store.Zxid()))
	if _, _, code := store.Get(a.Lock, ids); code == wire.CodeNoAuth {
		return errNoPermission
	}
	if st, ok := store.Node(a.Node); a.Valid && (!ok || int64(st.Czxid) != a.Token) {
		a.Valid, a.Node, a.Session, a.Reason = false, "", "", noSuchNode
	}
	return nil
}

// fenceQueue has the contenders of a lock, by token.
type fenceQueue map[int64]fenceContender

type fenceContender struct {
	name, kind string
	session    wire.SessionID
}

// add adds the node with that name, if it is there and a contender.
func (q fenceQueue) add(store *znode.Store, lock, name string) {
	kind, ok := znode.SequentialBase(name)
	if !ok {
		return
	}
	if st, ok := store.Node(childPath(lock, name)); ok {
		q[int64(st.Czxid)] = fenceContender{name, kind, wire.SessionID(st.EphemeralOwner)}
	}
}

// judgeQueue decides by the nodes of a queue: the one that was created first has the lock, readers
// share it, and every lease counts.
func (a *fenceAnswer) judgeQueue(queue fenceQueue) {
	for token := range queue {
		if a.Newest == 0 || token < a.Newest {
			a.Newest = token
		}
	}
	own, ok := queue[a.Token]
	if !ok {
		a.Reason = noSuchNode
		return
	}
	a.Node, a.Session = childPath(a.Lock, own.name), idText(own.session)
	var before int64 // the nearest that is in the way
	for token, other := range queue {
		if token < a.Token && token > before && !shares(own.kind, other.kind) {
			before = token
		}
	}
	if a.Valid = before == 0; !a.Valid {
		a.Reason = "its owner waits for the lock, behind " + queue[before].name
	}
}

func childPath(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

// shares reports whether own need not wait for other: both read (Curator's and kazoo's names), or
// own is a lease. Both are names without their numbers.
func shares(own, other string) bool {
	reads := func(kind string) bool {
		return strings.HasSuffix(kind, "__READ__") || strings.HasSuffix(kind, "__rlock__")
	}
	return strings.HasSuffix(own, "lease-") || reads(own) && reads(other)
}
