package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/server"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session/sasl"
)

// startMistaken starts a member with a port of each kind, and one that requires a login. It returns
// their addresses by name, and the directory with the certificates of the member and of app.
func startMistaken(t *testing.T) (ports map[string]string, certs string) {
	t.Helper()
	certs = filepath.Join(t.TempDir(), "certs")
	for _, args := range [][]string{{"init", certs}, {"client", certs, "app"}} {
		if status, _, stderr := invoke(append([]string{"certs"}, args...)...); status != exitOK {
			t.Fatal(stderr)
		}
	}
	free, err := freeport.Take(5)
	if err != nil {
		t.Fatal(err)
	}
	ports = map[string]string{}
	for i, name := range []string{"plain", "secure", "https", "http", "login"} {
		ports[name] = fmt.Sprintf("localhost:%d", free[i])
	}
	member := func(file string) string { return filepath.Join(certs, "member", file) }
	for _, cfg := range []server.Config{
		{Client: zoocfg.Client{Addr: ports["plain"], SecureAddr: ports["secure"]}, HTTP: zoocfg.HTTP{Addr: ports["https"], TLS: zoocfg.TLSOnly},
			TLS: zoocfg.TLS{Clients: secure.Settings{
				KeyStore:   secure.Store{File: member("tls.pem"), Type: secure.PEM},
				TrustStore: secure.Store{File: member("ca.pem"), Type: secure.PEM}}}},
		{Client: zoocfg.Client{Addr: ports["login"]}, HTTP: zoocfg.HTTP{Addr: ports["http"]},
			Auth: zoocfg.Auth{SASLUsers: sasl.Users{"bob": sasl.NewHA1("bob", "secret")}, RequiredSchemes: []string{"sasl"}}},
	} {
		cfg.Data.Dir = t.TempDir()
		s, err := server.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		for !s.Serving() {
			time.Sleep(time.Millisecond)
		}
	}
	return ports, certs
}

// TestMistakesAreNamed: a command that cannot do its work says why, and which flag helps.
func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	ports, certs := startMistaken(t)
	ca := " -tls-ca " + filepath.Join(certs, "app", "ca.pem")
	both := ca + " -tls-cert " + filepath.Join(certs, "app", "tls.pem")
	for line, want := range map[string]string{
		"ls -servers SECURE /":                     "the port speaks TLS, and this program does not (-tls-ca FILE",
		"ls -servers HTTPS /":                      "the port is for HTTP, not for clients (-servers names clientPort",
		"locks -servers SECURE":                    "the port speaks TLS, and this program does not (-tls-ca FILE",
		"lock -timeout 1s -servers SECURE /l true": "the port speaks TLS, and this program does not (-tls-ca FILE",
		"status -servers SECURE":                   "the port speaks TLS, and this program does not (-tls-ca FILE",
		"ls -servers PLAIN /" + both:               "the port does not speak TLS, and this program does (without -tls-ca",
		"status -servers PLAIN" + both:             "the port does not speak TLS, and this program does (without -tls-ca",
		"ls -servers SECURE /" + ca:                "the server refuses this program, which shows no certificate: ",
		"status -servers SECURE" + ca:              "the server refuses this program, which shows no certificate (-tls-cert FILE",
		"ls -servers HTTP /":                       "the port is for HTTP, not for clients (-servers names clientPort",
		"ls -servers LOGIN /":                      "the server requires a login, with SASL or a certificate (-auth-file",
		"create -servers LOGIN /x":                 "the server requires a login, with SASL or a certificate (-auth-file",
		"locks -servers LOGIN":                     "the server requires a login, with SASL or a certificate (-auth-file",
		"lock -servers LOGIN /l true":              "the server requires a login, with SASL or a certificate (-auth-file",
		"lock -timeout 1 /l true":                  `invalid value "1" for flag -timeout: it has no unit: 1s are seconds`,
		"lock -session x /l true":                  "it is no duration, as 500ms, 10s or 2m are",
		"lokc /l true":                             "Did you mean: lockkeeper lock",
		"certs lsit D":                             `"lsit" is not one of init, member`,
	} {
		replaced := line
		for name, addr := range ports {
			replaced = regexp.MustCompile(`\b`+strings.ToUpper(name)+`\b`).ReplaceAllString(replaced, addr)
		}
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := invoke(strings.Fields(replaced)...)
			if status == exitOK || !strings.Contains(stdout+stderr, want) {
				t.Errorf("status %d, want %q:\n%s%s", status, want, stdout, stderr)
			}
		})
	}
	large := strings.Repeat("x", 1<<20+1)
	if status, _, stderr := invoke("create", "-servers", ports["plain"], "/large", large); status != exitFailed || !strings.Contains(stderr, "more than its jute.maxbuffer allows") {
		t.Errorf("data that is too large: status %d: %s", status, stderr)
	}
}
