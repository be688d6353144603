package differ

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// jaasUsers is the file of users that both servers read.
const jaasUsers = `Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_bob="bobsecret"
    user_super="supersecret"
    "user_kim@REALM"="kimsecret";
};
`

const zkProviders = "=org.apache.zookeeper.server.auth."

// loginServers are the settings that the servers have in turn.
var loginServers = map[string][]string{
	"open": {"authProvider.1" + zkProviders + "SASLAuthenticationProvider", "superUser=super",
		"authProvider.2" + zkProviders + "KeyAuthenticationProvider",
		"authProvider.3" + zkProviders + "EnsembleAuthenticationProvider", "ensembleAuthName=alpha, beta"},
	"required": {"authProvider.1" + zkProviders + "SASLAuthenticationProvider", "sessionRequireClientSASLAuth=true",
		"allowSaslFailedClients=true"},
	"optional": {"authProvider.1" + zkProviders + "SASLAuthenticationProvider", "allowSaslFailedClients=true",
		"enforce.auth.enabled=true", "enforce.auth.schemes=ip", "SASLAuthenticationProvider.superPassword=another"},
}

// loginClient is a client that logs in, and records the result.
type loginClient struct {
	*conn
	nonce string
	said  []string
}

// ask sends a request and writes down the answer.
func (c *loginClient) ask(op wire.Op, body wire.Record) {
	b, _ := c.Append(nil, op, body)
	c.send(b)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	h, answer, err := c.ReadReply()
	if err != nil {
		c.said = append(c.said, fmt.Sprintf("%v closed", op))
		return
	}
	said := fmt.Sprintf("%v %v", op, h.Err)
	var token wire.SASLResponse
	var who wire.WhoAmIResponse
	switch {
	case op == wire.OpSASL && wire.Decode(answer, &token) == nil:
		// The nonce of the server, and the values computed from it, differ.
		text := string(token.Token)
		if _, nonce, ok := strings.Cut(text, `nonce="`); ok {
			c.nonce, _, _ = strings.Cut(nonce, `"`)
			text = strings.ReplaceAll(text, c.nonce, "N")
		} else if strings.HasPrefix(text, "rspauth=") {
			text = fmt.Sprintf("rspauth of %d bytes", len(text))
		}
		said += fmt.Sprintf(" %q null=%t", text, token.Token == nil)
	case op == wire.OpWhoAmI && h.Err == wire.CodeOK && wire.Decode(answer, &who) == nil:
		var ids []string // in any order
		for _, id := range who.Clients {
			ids = append(ids, id.AuthScheme+":"+id.User)
		}
		slices.Sort(ids)
		said += " " + strings.Join(ids, " ")
	}
	c.said = append(c.said, said)
}

func (c *loginClient) sasl(token string) { c.ask(wire.OpSASL, wire.SASLRequest{Token: []byte(token)}) }

func (c *loginClient) auth(scheme, data string) {
	c.ask(wire.OpAuth, wire.AuthPacket{Scheme: scheme, Auth: []byte(data)})
}

// response is the client's answer to a challenge. change replaces directives of the response after
// it has been computed; those that it makes empty are left out.
func (c *loginClient) response(user, password string, change ...string) string {
	hash := func(parts ...string) []byte {
		sum := md5.Sum([]byte(strings.Join(parts, ":")))
		return sum[:]
	}
	hexed := func(parts ...string) string { return hex.EncodeToString(hash(parts...)) }
	const uri = "zookeeper/zk-sasl-md5"
	a1 := []string{string(hash(user, "zk-sasl-md5", password)), c.nonce, "c"}
	d := map[string]string{"charset": "utf-8", "username": user, "realm": "zk-sasl-md5", "nonce": c.nonce, "nc": "00000001",
		"cnonce": "c", "digest-uri": uri, "qop": "auth"}
	changed := map[string]string{}
	for i := 0; i < len(change); i += 2 {
		if changed[change[i]] = change[i+1]; change[i] == "authzid" { // which is computed with
			a1 = append(a1, change[i+1])
		}
	}
	d["response"] = hexed(hexed(a1...), c.nonce, d["nc"], "c", "auth", hexed("AUTHENTICATE", uri))
	maps.Copy(d, changed)
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		switch value := d[name]; {
		case value == "":
		case slices.Contains([]string{"charset", "nc", "qop", "response"}, name):
			fields = append(fields, name+"="+value)
		default:
			fields = append(fields, fmt.Sprintf("%s=%q", name, value))
		}
	}
	return strings.Join(fields, ",")
}

// login logs in, and looks who the client is then.
func login(user, password string, change ...string) func(*loginClient) {
	return func(c *loginClient) {
		c.sasl("")
		c.sasl(c.response(user, password, change...))
		c.ask(wire.OpWhoAmI, nil)
	}
}

// logins are the clients' logins, each on a connection of its own, in this order.
var logins = []struct {
	name string
	do   func(*loginClient)
}{
	{"right", login("bob", "bobsecret")},
	{"wrong password", login("bob", "x")},
	{"super user", login("super", "supersecret")},
	{"super user's other password", login("super", "another")},
	{"the right one before an unknown user", login("bob", "bobsecret")},
	{"unknown user", login("eve", "bobsecret")},
	{"authzid", login("bob", "bobsecret", "authzid", "bob")},
	{"authzid of another", login("bob", "bobsecret", "authzid", "super")},
	{"principal", login("kim@REALM", "kimsecret")},
	{"principal, authzid of another", login("kim@REALM", "kimsecret", "authzid", "super")},
	{"digest-uri of another host", login("bob", "bobsecret", "digest-uri", "zookeeper/other")},
	{"digest-uri of another service", login("bob", "bobsecret", "digest-uri", "x/zk-sasl-md5")},
	{"no digest-uri", login("bob", "bobsecret", "digest-uri", "")},
	{"another realm", login("bob", "bobsecret", "realm", "other")},
	{"no realm", login("bob", "bobsecret", "realm", "")},
	{"another nonce", login("bob", "bobsecret", "nonce", "x")},
	{"nc", login("bob", "bobsecret", "nc", "00000002")},
	{"no nc", login("bob", "bobsecret", "nc", "")},
	{"no qop", login("bob", "bobsecret", "qop", "")},
	{"qop", login("bob", "bobsecret", "qop", "auth-int")},
	{"no cnonce", login("bob", "bobsecret", "cnonce", "")},
	{"no charset", login("bob", "bobsecret", "charset", "")},
	{"charset", login("bob", "bobsecret", "charset", "utf-16")},
	{"no response", login("bob", "bobsecret", "response", "")},
	{"unknown directive", login("bob", "bobsecret", "foo", "bar")},
	{"a first token", func(c *loginClient) { c.sasl("x"); c.ask(wire.OpWhoAmI, nil) }},
	{"no token", func(c *loginClient) { c.ask(wire.OpSASL, wire.SASLRequest{}) }},
	{"no body", func(c *loginClient) { c.ask(wire.OpSASL, nil) }},
	{"a long token", func(c *loginClient) { c.sasl(strings.Repeat("x", 4097)); c.ask(wire.OpWhoAmI, nil) }},
	{"two empty tokens", func(c *loginClient) { c.sasl(""); c.sasl(""); c.ask(wire.OpWhoAmI, nil) }},
	{"a third token", func(c *loginClient) {
		login("bob", "bobsecret")(c)
		c.sasl("")
		c.ask(wire.OpWhoAmI, nil)
	}},
	{"a failed login and another one", func(c *loginClient) {
		login("bob", "x")(c)
		c.sasl("")
		c.ask(wire.OpWhoAmI, nil)
	}},
	{"login after requests", func(c *loginClient) {
		c.ask(wire.OpSync, wire.SyncRequest{Path: "/"})
		login("bob", "bobsecret")(c)
	}},
	{"digest", func(c *loginClient) { c.auth("digest", "a:b"); c.ask(wire.OpWhoAmI, nil) }},
	{"sasl as auth", func(c *loginClient) { c.auth("sasl", "bob:bobsecret") }},
	{"this ensemble", func(c *loginClient) { c.auth("ensemble", "beta"); c.ask(wire.OpWhoAmI, nil) }},
	{"any ensemble", func(c *loginClient) { c.auth("ensemble", ""); c.ask(wire.OpWhoAmI, nil) }},
	{"another ensemble", func(c *loginClient) { c.auth("ensemble", "gamma") }},
	{"key without a key", func(c *loginClient) { c.auth("key", "x"); c.ask(wire.OpWhoAmI, nil) }},
	{"a key", func(c *loginClient) {
		c.ask(wire.OpCreate, wire.CreateRequest{Path: "/key", Data: []byte("7"), ACL: wire.OpenACL})
		c.auth("key", "14")
		c.ask(wire.OpWhoAmI, nil)
	}},
	{"another key", func(c *loginClient) { c.auth("key", "15") }},
	{"no key", func(c *loginClient) { c.auth("key", "") }},
	{"ACLs", func(c *loginClient) {
		login("bob", "bobsecret")(c)
		for _, id := range []wire.ID{{Scheme: "sasl", ID: "bob"}, {Scheme: "sasl", ID: "a@b@c"}, {Scheme: "auth"},
			{Scheme: "ensemble", ID: "alpha"}, {Scheme: "key", ID: "5"}} {
			path := "/acl-" + id.Scheme + id.ID
			c.ask(wire.OpCreate, wire.CreateRequest{Path: path, ACL: []wire.ACL{{Perms: wire.PermAll, ID: id}}})
			c.ask(wire.OpSetData, wire.SetDataRequest{Path: path, Version: -1})
		}
	}},
	{"ACLs of others", func(c *loginClient) {
		c.auth("digest", "a:b")
		c.ask(wire.OpGetData, wire.PathWatchRequest{Path: "/acl-auth"})
	}},
}

// knownLogins are the logins in which lockkeeper differs, as docs/security.md says: in ZooKeeper an
// unknown user logs in with the password of whoever logged in before, and some can become others.
var knownLogins = map[string]bool{"unknown user": true, "principal, authzid of another": true}

// loggedIn has a server take the logins, and returns the result of each.
func loggedIn(t *testing.T, target jepsen.Target, extra []string) map[string][]string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: 1, Dir: t.TempDir(), Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	all := map[string][]string{}
	for _, x := range logins {
		c, err := dial(cluster.Members()[0].ClientAddr, patience)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = c.Handshake(wire.ConnectRequest{TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)})
		}
		if err != nil {
			t.Fatal(err)
		}
		client := &loginClient{conn: c}
		x.do(client)
		all[x.name] = client.said
		_ = c.Close()
	}
	return all
}

// TestLogins: lockkeeper answers logins as ZooKeeper does, and closes the same connections, but for
// known differences.
func TestLogins(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	jaas := filepath.Join(t.TempDir(), "jaas")
	if err := os.WriteFile(jaas, []byte(jaasUsers), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "java.security.auth.login.config="
	zookeeper, err := jepsen.ZooKeeper("-D" + key + jaas) // it takes it from nowhere else
	jepsen.Need(t, err)
	for name, extra := range loginServers {
		theirs, ours := loggedIn(t, zookeeper, extra), loggedIn(t, lockkeeper, append(slices.Clone(extra), key+jaas))
		for _, x := range logins {
			their, our := strings.Join(theirs[x.name], "\n\t"), strings.Join(ours[x.name], "\n\t")
			if (their != our) != knownLogins[x.name] {
				t.Errorf("%s: %s:\nlockkeeper:\n\t%s\nzookeeper:\n\t%s", name, x.name, our, their)
			}
		}
	}
}
