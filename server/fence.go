package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

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
	var code wire.Code
	ids := s.httpIdentities(r)
	s.replica.View(func(store *znode.Store) { code = answer.judge(store, ids, s.cfg.SkipACL) })
	switch {
	case code == wire.CodeNoAuth:
		writeError(w, http.StatusForbidden, "READ on "+lock+" is needed: Authorization: digest user:password")
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

func (a *fenceAnswer) judge(store *znode.Store, ids []znode.Identity, skipACL bool) wire.Code {
	a.Zxid = fmt.Sprintf("0x%x", uint64(store.Zxid()))
	if skipACL {
		ids = append(ids, znode.Identity{Scheme: "super"})
	}
	names, stat, code := store.Children(a.Lock, ids)
	switch {
	case code == wire.CodeNoAuth:
		return code
	case code != wire.CodeOK:
		a.Reason = "there is no such lock: nobody holds it"
		return wire.CodeOK
	case stat.EphemeralOwner != 0 && len(names) == 0: // a lock that is one node
		a.Newest = int64(stat.Czxid)
		if a.Valid = a.Newest == a.Token; a.Valid {
			a.Node, a.Session = a.Lock, idText(wire.SessionID(stat.EphemeralOwner))
		} else {
			a.Reason = "another has the lock"
		}
		return wire.CodeOK
	}
	a.judgeQueue(store, names)
	return wire.CodeOK
}

// judgeQueue decides by the nodes of a queue: the one that was created first has the lock, readers
// share it, and every lease counts.
func (a *fenceAnswer) judgeQueue(store *znode.Store, names []string) {
	type contender struct{ name, kind string }
	contenders := map[int64]contender{} // by token
	for _, name := range names {
		kind, ok := znode.SequentialBase(name)
		if !ok {
			continue
		}
		st, _ := store.Node(childPath(a.Lock, name))
		token := int64(st.Czxid)
		contenders[token] = contender{name, kind}
		if a.Newest == 0 || token < a.Newest {
			a.Newest = token
		}
		if token == a.Token {
			a.Node, a.Session = childPath(a.Lock, name), idText(wire.SessionID(st.EphemeralOwner))
		}
	}
	own, ok := contenders[a.Token]
	if !ok {
		a.Reason = "no node of the lock has this token: its holder has released the lock, or lost it"
		return
	}
	var before int64 // the nearest that is in the way
	for token, other := range contenders {
		if token < a.Token && token > before && !shares(own.kind, other.kind) {
			before = token
		}
	}
	if a.Valid = before == 0; !a.Valid {
		a.Reason = "its owner waits for the lock, behind " + contenders[before].name
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
