package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"lockkeeper/quorum"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// A follower that is asked to transfer the leadership verifies the password itself, and proves to
// the leader that it has seen one: with an HMAC-SHA-256 of the occasion, which is one request in
// one term, and a key that is the identity which the password proves, with its hash. So the
// password does not cross the port between members, and the proof is worth nothing for another
// request. The leader computes the HMAC for each identity that may transfer the leadership: the
// super user's, and those in the ACL of /zookeeper/config.
//
//	hmac BASE64(user) BASE64(code)
const transferProofScheme = "hmac"

// proveTransfer returns the proof that a request's Authorization header makes possible; nil if it
// proves nothing.
func (s *Server) proveTransfer(r *http.Request) quorum.Prove {
	for _, id := range s.authorization(r.Header.Get("Authorization")) {
		if id.Scheme == "digest" {
			user, _, _ := strings.Cut(id.ID, ":")
			return func(occasion []byte) string {
				return transferProofScheme + " " + base64.StdEncoding.EncodeToString([]byte(user)) + " " + transferCode(id.ID, occasion)
			}
		}
	}
	return nil
}

// transferCode is the code that only a member can compute that knows the identity.
func transferCode(identity string, occasion []byte) string {
	code := hmac.New(sha256.New, []byte(identity))
	code.Write(occasion)
	return base64.StdEncoding.EncodeToString(code.Sum(nil))
}

// mayTransfer is mayLead for a request that another member forwards. The address of the client does
// not count here: the other member could claim any. Members of the version before send the
// Authorization header itself.
func (s *Server) mayTransfer(proof string, occasion []byte) error {
	fields := strings.Fields(proof)
	if len(fields) != 3 || fields[0] != transferProofScheme {
		return s.mayLead(s.authorization(proof))
	}
	user, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return errMayNotLead
	}
	for _, id := range s.mayLeadByDigest() {
		name, _, _ := strings.Cut(id, ":")
		if name == string(user) && hmac.Equal([]byte(transferCode(id, occasion)), []byte(fields[2])) {
			return nil
		}
	}
	return s.mayLead(nil)
}

// mayLeadByDigest are the identities of scheme digest that may transfer the leadership.
func (s *Server) mayLeadByDigest() (ids []string) {
	if s.cfg.NoDigest {
		return nil
	}
	if s.cfg.SuperDigest != "" {
		ids = append(ids, s.cfg.SuperDigest)
	}
	for _, a := range s.configACL() {
		if a.ID.Scheme == "digest" && a.Perms&wire.PermWrite != 0 {
			ids = append(ids, a.ID.ID)
		}
	}
	return ids
}

// configACL is the ACL of /zookeeper/config.
func (s *Server) configACL() (acl []wire.ACL) {
	s.replica.View(func(store *znode.Store) {
		acl, _, _ = store.GetACL("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	})
	return acl
}
