package main

import (
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/testcert"
	"lockkeeper/recipes"
	"lockkeeper/server"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
)

// TestCommandsOverTLS: the commands reach a member that speaks nothing else, as the holder of their
// certificate.
func TestCommandsOverTLS(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), testcert.NewCA(t, "authority")
	for _, name := range []string{"server", "me"} {
		ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: name}, Hosts: []string{"127.0.0.1"}}).Write(t, dir, name)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	s := cluster(t, func(cfg *server.Config) {
		cfg.Client.TLS, cfg.HTTP.TLS, cfg.HTTP.Addr = zoocfg.TLSOnly, zoocfg.TLSOnly, "127.0.0.1:0"
		cfg.TLS.Clients = secure.Settings{KeyStore: secure.Store{File: at("server.pem"), KeyFile: at("server.key")},
			TrustStore: secure.Store{File: at("server.ca"), Type: secure.PEM}}
	})
	for _, c := range []struct{ ca, cert, key, want string }{
		{"", at("me.pem"), "", "need -tls-ca"},
		{at("me.ca"), "", at("me.key"), "-tls-key needs -tls-cert"},
		{at("me.ca"), at("me.pem"), "", "has no private key"},
		{at("nothing"), "", "", "no such file or directory"},
	} {
		if _, err := (&tlsFlags{c.ca, c.cert, c.key}).config(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s.variables[caVariable] = at("me.ca")
	s.variables[certVariable] = at("me.pem")
	config, err := (&tlsFlags{at("me.ca"), at("me.pem"), at("me.key")}).config()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := recipes.Connect(recipes.Config{Servers: []string{s.ClientAddr().String()}, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	mine := []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=me"}}
	for _, path := range []string{"/mine", "/mine/lock"} {
		if _, err := owner.Conn().Create(path, nil, 0, mine); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"lock", "-tls-key", at("me.key"), "/mine/lock", "true"},
		{"locks", "-tls-key", at("me.key"), "/mine"},
		{"bench", "-tls-key", at("me.key"), "-workload", "read", "-clients", "2", "-duration", "100ms"},
	} {
		p := s.start("", args...)
		if status, lines := p.wait(); status != 0 {
			t.Errorf("%q: %d %q %s", args, status, lines, p.stderr.String())
		}
	}
	p := s.start("", "cluster", "transfer-leader", "-tls-key", at("me.key"), "-http", s.HTTPAddr().String())
	if status, _ := p.wait(); status == 0 || !strings.Contains(p.stderr.String(), "this member stands alone") {
		t.Errorf("transfer: %s", p.stderr.String())
	}
}

// contextsFile writes the file of contexts of a new user.
func contextsFile(t *testing.T, text string) (u *user, file string) {
	t.Helper()
	u = &user{t: t, configDir: t.TempDir(), variables: map[string]string{}}
	file = filepath.Join(u.configDir, "lockkeeper", "contexts")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return u, file
}

// TestDestination is the order in which commands find the members: flag, variable, current context,
// default. The files of a context are used with its own members only.
func TestDestination(t *testing.T) {
	t.Parallel()
	u, file := contextsFile(t, "current = b\n[a]\nservers = a:1\ntls-ca = ca.pem\nauth-file = secret\n[b]\nservers = b:1\nhttp = https://b:9\n")
	for _, name := range []string{"ca.pem", "secret"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte("user:password\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, secret := filepath.Join(filepath.Dir(file), "ca.pem"), filepath.Join(filepath.Dir(file), "secret")
	for _, c := range []struct {
		servers, context string
		variables        map[string]string
		want             clientFlags
	}{
		{"f:1", "", map[string]string{serversVariable: "v:1"}, clientFlags{servers: "f:1"}},
		{"", "", map[string]string{serversVariable: "v:1"}, clientFlags{servers: "v:1"}},
		{"", "", nil, clientFlags{servers: "b:1"}},
		{"", "a", map[string]string{serversVariable: "v:1"}, clientFlags{servers: "a:1", authFile: secret, tls: tlsFlags{ca: ca}}},
		{"", "a", map[string]string{authVariable: "x:y"}, clientFlags{servers: "a:1", tls: tlsFlags{ca: ca}}},
		{"", "a", map[string]string{caVariable: "other"}, clientFlags{servers: "a:1", authFile: secret, tls: tlsFlags{ca: "other"}}},
		{"", "default", map[string]string{serversVariable: "v:1"}, clientFlags{servers: "v:1"}},
	} {
		f := clientFlags{servers: c.servers, context: c.context, tls: tlsFlags{ca: c.variables[caVariable]},
			e: env{variables: c.variables, configDir: u.configDir}}
		if c.context == "default" {
			c.want.servers = defaultServers
		}
		if err := f.resolve(); err != nil || f.servers != c.want.servers || f.authFile != c.want.authFile || f.tls != c.want.tls {
			t.Errorf("%+v: %v, servers %s, auth file %q, %+v", c, err, f.servers, f.authFile, f.tls)
		}
	}
	f := clientFlags{servers: "f:1", context: "a", e: env{configDir: u.configDir}}
	if err := f.resolve(); err == nil {
		t.Error("-servers and -context together")
	}
	nobody := clientFlags{}
	if err := nobody.resolve(); err != nil || nobody.servers != defaultServers {
		t.Errorf("without a directory: %v, %s", err, nobody.servers)
	}
}

// TestContextFaults: a damaged file stops the commands, with file, line and key.
func TestContextFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"current = a\n[a]\nservers = a:b\n":                   `:3: servers: "a:b" is not host:port`,
		"current = a\n[a]\nservers = a:1\ntls-ca = missing\n": ":4: tls-ca: stat ",
		"[a]\nservers = a:1\npassword = x\n":                  ":3: password: a context has the keys",
	} {
		u, file := contextsFile(t, text)
		for _, args := range [][]string{{"locks"}, {"status"}, {"bench", "-duration", "1s"}, {"sessions"}, {"ls", "/"}} {
			if status, _, stderr := u.invoke(args...); status != exitUsage || !strings.Contains(stderr, file+want) {
				t.Errorf("%q: %d, %s\nwant %s", args, status, stderr, file+want)
			}
		}
	}
}

// TestContext: contexts are added, used, shown and removed, and a command connects by the current
// one.
func TestContext(t *testing.T) {
	t.Parallel()
	u := &user{t: t, configDir: t.TempDir(), variables: map[string]string{}}
	s := cluster(t, nil).ClientAddr().String()
	for _, step := range []struct {
		args   string
		status int
		want   string // in the output
	}{
		{"context", exitOK, "* default          127.0.0.1:2181\n"},
		{"context add here -servers " + s, exitOK, "'lockkeeper context use here'"},
		{"context add here -servers " + s, exitFailed, "already"},
		{"context add gone -servers 127.0.0.1:1", exitOK, "added to "},
		{"context add bad -servers x:y", exitUsage, "not host:port"},
		{"context add bad -servers h -auth-file missing", exitUsage, "-auth-file: "},
		{"context use nobody", exitFailed, "there is no such context"},
		{"context use gone", exitOK, ""},
		{"context", exitOK, "* gone             127.0.0.1:1\n"},
		{"locks", exitFailed, "127.0.0.1:1 (context gone)"},
		{"locks -context here", exitOK, "nobody holds"},
		{"locks -context nobody", exitUsage, "'lockkeeper context' lists them"},
		{"context use here", exitOK, ""},
		{"locks", exitOK, "nobody holds"},
		{"context remove here", exitOK, ""},
		{"context", exitOK, "* default          127.0.0.1:2181\n"},
		{"context nope x", exitUsage, "none of list"},
	} {
		status, stdout, stderr := u.invoke(strings.Fields(step.args)...)
		if status != step.status || !strings.Contains(stdout+stderr, step.want) {
			t.Errorf("%s: %d, %s%s\nwant %d, %q", step.args, status, stdout, stderr, step.status, step.want)
		}
	}
	u.variables[serversVariable] = "v:1"
	if _, stdout, _ := u.invoke("context"); !strings.Contains(stdout, "$LOCKKEEPER_SERVERS comes before the current context: v:1") {
		t.Errorf("%s", stdout)
	}
}
