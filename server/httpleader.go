package server

import (
	"context"
	"errors"
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
	if err := s.mayLead(s.httpIdentities(r)); err != nil {
		fail(http.StatusForbidden, err.Error())
		return
	}
	if !s.Serving() {
		fail(http.StatusServiceUnavailable, "this member has no leader")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	if err := s.replica.TransferLeadership(ctx, to, r.Header.Get("Authorization")); err != nil {
		fail(http.StatusConflict, err.Error())
		return
	}
	leader := int(s.replica.Leader())
	s.log.Info("leadership transferred, as asked over HTTP", "remote", r.RemoteAddr, "leader", leader)
	writeJSON(w, http.StatusOK, leaderAnswer{Leader: leader})
}

var errMayNotLead = errors.New("WRITE on /zookeeper/config is needed, which the super user has: Authorization: digest user:password")

// mayLead says why somebody must not have the leadership moved.
func (s *Server) mayLead(ids []znode.Identity) error {
	var acl []wire.ACL
	s.replica.View(func(store *znode.Store) {
		acl, _, _ = store.GetACL("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	})
	if !s.cfg.SkipACL && !znode.Allowed(acl, ids, wire.PermWrite) {
		return errMayNotLead
	}
	return nil
}

// mayTransfer is mayLead of somebody whom another member has heard, as that says. Proof is what stood behind Authorization. The
// address of whoever asked does not count here: the other member could say anything.
func (s *Server) mayTransfer(proof string) error { return s.mayLead(s.authorization(proof)) }
