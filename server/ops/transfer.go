package ops

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

// ErrMayNotTransfer refuses to transfer the leadership.
var ErrMayNotTransfer = errors.New("WRITE on /zookeeper/config is needed, which the super user has: " +
	"Authorization: digest user:password")

// ErrAlone refuses to transfer the leadership of a member that stands alone.
var ErrAlone = errors.New("this member stands alone: there is nobody else")

// Transfer transfers the leadership to a member, or to any other voter if to is quorum.NoMember,
// and returns the new leader. The leader verifies that the identities may ask for it.
func Transfer(ctx context.Context, m Member, ids []znode.Identity, to quorum.MemberID) (leader int, err error) {
	if m.Config().Standalone() {
		return 0, ErrAlone
	}
	if err := m.Replica().TransferLeadership(ctx, to, ProveTransfer(ids)); err != nil {
		return 0, err
	}
	return m.Standing().Leader, nil
}

// MayTransfer returns ErrMayNotTransfer if these identities may not transfer the leadership.
func MayTransfer(m Member, ids []znode.Identity) error {
	if !m.Config().Auth.SkipACL && !znode.Allowed(configACL(m), ids, wire.PermWrite) {
		return ErrMayNotTransfer
	}
	return nil
}

// ProveTransfer returns the proof that the identities of a request make possible; nil if they prove
// nothing.
func ProveTransfer(ids []znode.Identity) quorum.Prove {
	for _, id := range ids {
		if id.Scheme == "digest" {
			user, _, _ := strings.Cut(id.ID, ":")
			return func(occasion []byte) string {
				return transferProofScheme + " " + base64.StdEncoding.EncodeToString([]byte(user)) + " " +
					transferCode(id.ID, occasion)
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

// VerifyTransfer is MayTransfer for a request that another member forwards with a proof. The
// address of the client does not count here: the other member could claim any.
func VerifyTransfer(m Member, proof string, occasion []byte) error {
	fields := strings.Fields(proof)
	if len(fields) != 3 || fields[0] != transferProofScheme {
		return MayTransfer(m, nil)
	}
	user, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return ErrMayNotTransfer
	}
	for _, id := range mayTransferByDigest(m) {
		name, _, _ := strings.Cut(id, ":")
		if name == string(user) && hmac.Equal([]byte(transferCode(id, occasion)), []byte(fields[2])) {
			return nil
		}
	}
	return MayTransfer(m, nil)
}

// mayTransferByDigest are the identities of scheme digest that may transfer the leadership.
func mayTransferByDigest(m Member) (ids []string) {
	if m.Config().Auth.NoDigest {
		return nil
	}
	if m.Config().Auth.SuperDigest != "" {
		ids = append(ids, m.Config().Auth.SuperDigest)
	}
	for _, a := range configACL(m) {
		if a.ID.Scheme == "digest" && a.Perms&wire.PermWrite != 0 {
			ids = append(ids, a.ID.ID)
		}
	}
	return ids
}

// configACL is the ACL of /zookeeper/config.
func configACL(m Member) (acl []wire.ACL) {
	m.View(func(store *znode.Store) {
		acl, _, _ = store.GetACL("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	})
	return acl
}
