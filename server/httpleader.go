package server

import (
	"context"
	"net/http"
	"strconv"

	"lockkeeper/quorum"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// leaderAnswer is what POST /leader says.
type leaderAnswer struct {
	Leader int `json:"leader"` // who leads now
}

// serveLeader answers POST /leader?to=N: member N, or without it any other voter, is to lead. Whoever asks needs what reconfig
// needs: WRITE on /zookeeper/config. It answers 200 when that has happened, 409 and the reason when it has not, 403 to those
// who may not ask, 400 if N is no number, and 503 if there is no leader.
func (s *Server) serveLeader(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, text string) { writeJSON(w, status, map[string]string{"error": text}) }
	if s.cfg.Standalone() {
		fail(http.StatusConflict, "this member stands alone: there is nobody else")
		return
	}
	to := quorum.NoMember
	if text := r.URL.Query().Get("to"); text != "" {
		n, err := strconv.ParseUint(text, 10, 8)
		if to = quorum.MemberID(n); err != nil {
			fail(http.StatusBadRequest, strconv.Quote(text)+" is not the number of a member")
			return
		}
	}
	var acl []wire.ACL
	s.replica.View(func(store *znode.Store) {
		acl, _, _ = store.GetACL("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	})
	if !s.cfg.SkipACL && !znode.Allowed(acl, s.httpIdentities(r), wire.PermWrite) {
		fail(http.StatusForbidden, "WRITE on /zookeeper/config is needed, which the super user has: Authorization: digest user:password")
		return
	}
	if !s.Serving() {
		fail(http.StatusServiceUnavailable, "this member has no leader")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	if err := s.replica.TransferLeadership(ctx, to); err != nil {
		fail(http.StatusConflict, err.Error())
		return
	}
	leader := int(s.replica.Leader())
	s.log.Info("leadership handed on, as asked over HTTP", "remote", r.RemoteAddr, "leader", leader)
	writeJSON(w, http.StatusOK, leaderAnswer{Leader: leader})
}
