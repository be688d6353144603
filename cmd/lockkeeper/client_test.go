package main

import (
	"crypto/x509/pkix"
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
