package server

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/wire"
)

const (
	superDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" // super:test
	operator    = "op:s3cret"
)

// A follower proves to the leader that a client may transfer the leadership, without the password
// or its hash, for one occasion.
func TestTransferProof(t *testing.T) {
	s := startReal(t, func(c *Config) { c.Auth.SuperDigest = superDigest })
	super := dialReal(t, s)
	super.connect(10 * time.Second)
	super.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
	op := s.sessions.DigestIdentities(operator)[0].ID
	super.call(wire.OpSetACL, wire.SetACLRequest{Path: "/zookeeper/config", Version: -1, ACL: []wire.ACL{
		{Perms: wire.PermRead, ID: wire.OpenACL[0].ID},
		{Perms: wire.PermWrite, ID: wire.ID{Scheme: "digest", ID: op}},
		{Perms: wire.PermRead, ID: wire.ID{Scheme: "digest", ID: s.sessions.DigestIdentities("reader:pa55word")[0].ID}},
	}})
	prove := func(auth, occasion string) string {
		proof := ops.ProveTransfer(s.sessions.DigestIdentities(auth))([]byte(occasion))
		_, password, _ := strings.Cut(auth, ":")
		_, hash, _ := strings.Cut(s.sessions.DigestIdentities(auth)[0].ID, ":")
		for _, secret := range []string{password, hash, base64.StdEncoding.EncodeToString([]byte(auth))} {
			if strings.Contains(proof, secret) {
				t.Errorf("%s: the proof %q contains %q", auth, proof, secret)
			}
		}
		return proof
	}
	for _, tt := range []struct {
		proof string
		ok    bool
	}{
		{prove("super:test", "now"), true},
		{prove(operator, "now"), true},
		{prove("super:guess", "now"), false},
		{prove("op:guess", "now"), false},
		{prove("reader:pa55word", "now"), false},
		{prove("nobody:pa55word", "now"), false},
		{prove("super:test", "before"), false},
		{"digest super:test", false},
		{"digest super:guess", false},
		{"", false},
		{"hmac", false},
		{"hmac x y", false},
		{"hmac c3VwZXI= ", false},
		{"hmac c3VwZXI= AAAA", false},
	} {
		if err := ops.VerifyTransfer(s.Ops(), tt.proof, []byte("now")); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.proof, err)
		}
	}
}

// The super user transfers the leadership by way of a follower.
func TestFollowerTransfersLeadership(t *testing.T) {
	t.Parallel()
	members, _ := startCluster(t, "admin.serverPort=FREE_PORT\nDigestAuthenticationProvider.superDigest="+superDigest+"\n")
	for _, s := range members {
		awaitServing(t, s)
	}
	leader := int(members[0].replica.Leader())
	follower, next := members[leader%3], (leader+1)%3+1
	for auth, want := range map[string]int{"": http.StatusForbidden, "digest super:guess": http.StatusForbidden, "digest super:test": http.StatusOK} {
		r, err := http.NewRequest(http.MethodPost, "http://"+follower.HTTPAddr().String()+"/leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", auth)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q by a follower: %s, want %d (member %d leads; %d could)", auth, resp.Status, want, leader, next)
		}
	}
}
