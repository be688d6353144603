package session

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

var saslUsers = sasl.Users{"bob": sasl.NewHA1("bob", "secret"), "root": sasl.NewHA1("root", "secret")}

// sasl sends a token, and returns the code of the answer and the token in it.
func (c *client) sasl(token []byte) (wire.Code, []byte) {
	c.t.Helper()
	c.send(wire.OpSASL, wire.SASLRequest{Token: token})
	h, body, err := c.next()
	var answer wire.SASLResponse
	if err != nil || h.Zxid != 0 || wire.Decode(body, &answer) != nil || (answer.Token == nil) != (h.Err != wire.CodeOK || len(token) == 1) {
		c.t.Errorf("answer to %q: %+v %x, %v", token, h, body, err)
	}
	return h.Err, answer.Token
}

// login logs in with SASL and returns the code of the last answer.
func (c *client) login(user, password string) wire.Code {
	c.t.Helper()
	_, challenge := c.sasl([]byte{})
	_, nonce, _ := strings.Cut(string(challenge), `nonce="`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	const uri = sasl.Service + "/" + sasl.Realm
	hash := func(parts ...string) string { return fmt.Sprintf("%x", md5.Sum([]byte(strings.Join(parts, ":")))) }
	ha1 := sasl.NewHA1(user, password)
	response := hash(hash(string(ha1[:]), nonce, "c"), nonce, "00000001", "c", "auth", hash("AUTHENTICATE", uri))
	code, answer := c.sasl(fmt.Appendf(nil, `username="%s",realm="%s",nonce="%s",cnonce="c",nc=00000001,digest-uri="%s",response=%s`,
		user, sasl.Realm, nonce, uri, response))
	if (code == wire.CodeOK) != strings.HasPrefix(string(answer), "rspauth=") && !c.s.m.cfg.Auth.SASLOptional {
		c.t.Errorf("last answer: %v %q", code, answer)
	}
	return code
}

// TestSASLLogin: as ZooKeeper 3.8.0 answers.
func TestSASLLogin(t *testing.T) {
	bob := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "sasl", ID: "bob"}}}
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Auth: Auth{SASLUsers: saslUsers, SuperUsers: []string{"root"}}})
		r.flags = znode.SASL
		c := mustConnect(t, m, 10*time.Second)
		if code := c.login("bob", "secret"); code != wire.CodeOK {
			t.Fatal(code)
		}
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/bob", ACL: bob})
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/mine", ACL: mine})
		c.send(wire.OpGetACL, wire.PathRequest{Path: "/mine"})
		c.expect("3 Ok", "4 Ok")
		var got wire.GetACLResponse
		if _, body, err := c.next(); err != nil || wire.Decode(body, &got) != nil || len(got.ACL) != 1 || got.ACL[0] != bob[0] {
			t.Errorf("an ACL of scheme auth is stored as %+v, %v", got.ACL, err)
		}
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpGetData, wire.PathWatchRequest{Path: "/bob"})
		other.expect("1 NoAuth")
		// A login may come late, and as a super user.
		if code := other.login("root", "secret"); code != wire.CodeOK {
			t.Error(code)
		}
		other.send(wire.OpGetData, wire.PathWatchRequest{Path: "/bob"})
		other.expect("4 Ok")
		// It is the only one of its connection.
		c.send(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
		c.expect("6 AuthFailed", "EOF")

		for user, password := range map[string]string{"bob": "wrong", "root": "wrong", "eve": "secret"} {
			c := mustConnect(t, m, 10*time.Second)
			if code := c.login(user, password); code != wire.CodeAuthFailed {
				t.Errorf("%s: %v", user, code)
			}
			c.expect("EOF")
			if again, err := connect(t, m, c.reattach()); err != nil || again.s == nil {
				t.Errorf("%s: the session has ended: %v", user, err)
			}
		}
		if st := m.Stats(); st.LoginsRefused != 4 || st.SuperLoginsRefused != 1 {
			t.Errorf("%d refused logins are counted, %d of them as super user", st.LoginsRefused, st.SuperLoginsRefused)
		}
	})
}

// TestAnySASLUser: what an ACL gives to the name, everybody has who has logged in with SASL. It is
// not their identity: nodes that they create with scheme auth are theirs alone.
func TestAnySASLUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Auth: Auth{SASLUsers: saslUsers, AnySASLUser: "everybody"}})
		r.flags = znode.SASL
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/any", ACL: []wire.ACL{
			{Perms: wire.PermRead | wire.PermCreate, ID: wire.ID{Scheme: "sasl", ID: "everybody"}}}})
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/any"})
		c.expect("1 Ok", "2 NoAuth")

		bob, root := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		bob.login("bob", "secret")
		root.login("root", "secret")
		bob.send(wire.OpGetData, wire.PathWatchRequest{Path: "/any"})
		bob.send(wire.OpSetData, wire.SetDataRequest{Path: "/any", Version: -1})
		bob.send(wire.OpCreate, wire.CreateRequest{Path: "/any/bob", ACL: mine})
		bob.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: "/any/multi", ACL: mine}}}})
		bob.expect("3 Ok", "4 NoAuth", "5 Ok", "6 Ok")
		for i, path := range []string{"/any/bob", "/any/multi"} {
			bob.send(wire.OpGetACL, wire.PathRequest{Path: path})
			var got wire.GetACLResponse
			if _, body, err := bob.next(); err != nil || wire.Decode(body, &got) != nil || len(got.ACL) != 1 || got.ACL[0].ID.ID != "bob" {
				t.Errorf("the ACL of %s is %+v, %v", path, got.ACL, err)
			}
			root.send(wire.OpGetData, wire.PathWatchRequest{Path: path})
			root.expect(fmt.Sprintf("%d NoAuth", i+3))
		}
		bob.send(wire.OpWhoAmI, nil)
		var who wire.WhoAmIResponse
		if _, body, err := bob.next(); err != nil || wire.Decode(body, &who) != nil || len(who.Clients) != 2 || who.Clients[1].User != "bob" {
			t.Errorf("whoami says %+v, %v", who, err)
		}
	})
}

// TestSASLRequired: with the scheme among those that are required a login that fails is answered in
// another way; where it is optional, the connection goes on.
func TestSASLRequired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Auth: Auth{SASLUsers: saslUsers, RequiredSchemes: []string{"sasl"}, SASLOptional: true}})
		c := mustConnect(t, m, 10*time.Second)
		if code := c.login("bob", "wrong"); code != wire.CodeSessionClosedRequireSASLAuth {
			t.Error(code)
		}
		c.expect("EOF")
		c = mustConnect(t, m, 10*time.Second)
		c.login("bob", "secret")
		c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
		c.send(wire.OpAuth, digest("u"))
		c.expect("3 Ok", "4 Ok")
		c = mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAuth, digest("u"))
		c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
		c.expect("1 Ok", "2 SessionClosedRequireSaslAuth", "EOF")

		// Nor does a client that has not logged in get memory.
		c = mustConnect(t, m, 10*time.Second)
		if err := c.s.Expect(1); err != errNotLoggedIn {
			t.Errorf("a long frame before the login: %v", err)
		}
		c.login("bob", "secret")
		if err := c.s.Expect(1); err != nil {
			t.Errorf("a long frame behind the login: %v", err)
		}
		c.s.Arrived()

		m, _ = newMember(t, Config{Auth: Auth{SASLUsers: saslUsers, RequiredSchemes: []string{"digest"}, SASLOptional: true}})
		c = mustConnect(t, m, 10*time.Second)
		c.send(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
		c.send(wire.OpSASL, wire.SASLRequest{Token: []byte("garbage")})
		c.send(wire.OpSASL, wire.SASLRequest{Token: []byte{}})
		c.send(wire.OpAuth, digest("u"))
		c.send(wire.OpSync, wire.SyncRequest{Path: "/"})
		c.expect("1 Ok", "2 Ok", "3 Ok", "4 Ok", "5 Ok")
	})
}

// TestEnsembleScheme: a client that expects another cluster is disconnected, and keeps its session.
func TestEnsembleScheme(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{Auth: Auth{Ensembles: []string{"alpha", "beta"}}})
		c := mustConnect(t, m, 10*time.Second)
		for _, name := range [][]byte{[]byte("alpha"), []byte("beta"), {}, nil} {
			c.send(wire.OpAuth, wire.AuthPacket{Scheme: "ensemble", Auth: name})
		}
		c.expect("1 Ok", "2 Ok", "3 Ok", "4 Ok")
		if ids := *c.s.ids.Load(); len(ids) != 1 {
			t.Errorf("the name of the ensemble gives identities: %v", ids)
		}
		if err := c.submit(wire.AppendRequest(nil, 5, wire.OpAuth, wire.AuthPacket{Scheme: "ensemble", Auth: []byte("gamma")})[4:]); err != errOtherEnsemble {
			t.Error(err)
		}
		c.s.Detach()
		if again, err := connect(t, m, c.reattach()); err != nil || again.s == nil {
			t.Errorf("the session has ended: %v", err)
		}
		if n := m.Stats().OtherEnsemble; n != 1 {
			t.Errorf("%d are counted", n)
		}
		any, _ := newMember(t, Config{Auth: Auth{Ensembles: []string{}}})
		none, _ := newMember(t, Config{})
		for m, want := range map[*Manager]string{any: "1 Ok", none: "1 AuthFailed"} {
			c := mustConnect(t, m, 10*time.Second)
			c.send(wire.OpAuth, wire.AuthPacket{Scheme: "ensemble", Auth: []byte("gamma")})
			c.expect(want)
		}
	})
}

// TestKeyScheme: as ZooKeeper 3.8.0 answers.
func TestKeyScheme(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{Auth: Auth{KeyScheme: true}})
		r.flags = znode.KeyScheme
		writer := mustConnect(t, m, 10*time.Second)
		xid := 0
		write := func(op wire.Op, body wire.Record) {
			t.Helper()
			xid++
			writer.send(op, body)
			writer.expect(fmt.Sprintf("%d Ok", xid))
		}
		try := func(auth []byte, want string) {
			t.Helper()
			c := mustConnect(t, m, 10*time.Second)
			c.send(wire.OpAuth, wire.AuthPacket{Scheme: "key", Auth: auth})
			c.expect("1 " + want)
		}
		try([]byte("x"), "Ok") // there is no key yet
		try(nil, "AuthFailed")
		write(wire.OpCreate, wire.CreateRequest{Path: "/key", Data: []byte("7"), ACL: wire.OpenACL})
		for _, good := range []string{"14", "-7", "0", "+7", "007"} {
			try([]byte(good), "Ok")
		}
		for _, bad := range []string{"15", "x", "", "99999999999", " 7"} {
			try([]byte(bad), "AuthFailed")
		}
		for data, want := range map[string]string{"0": "Ok", "zz": "AuthFailed", "": "AuthFailed"} {
			write(wire.OpSetData, wire.SetDataRequest{Path: "/key", Data: []byte(data), Version: -1})
			try([]byte("5"), want)
		}
		write(wire.OpSetData, wire.SetDataRequest{Path: "/key", Version: -1})
		try([]byte("5"), "Ok")
		write(wire.OpAuth, wire.AuthPacket{Scheme: "key", Auth: []byte("5")})
		write(wire.OpCreate, wire.CreateRequest{Path: "/mine", ACL: mine})
		other := mustConnect(t, m, 10*time.Second)
		other.send(wire.OpGetData, wire.PathWatchRequest{Path: "/mine"})
		other.expect("1 NoAuth")
	})
}
