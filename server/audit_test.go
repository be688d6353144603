package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
)

// The audit log begins with the start of a member and ends with its stop.
func TestAuditFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	s := startReal(t, func(cfg *Config) {
		cfg.Audit.On, cfg.Audit.File = true, file
		allWords(cfg)
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
	if text := dialReal(t, s).word("mntr"); !strings.Contains(text, "zk_audit_lines\t2\nzk_audit_lines_lost\t0\n") {
		t.Errorf("mntr has no counts of the audit log:\n%s", text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[0], "\toperation=serverStart\tresult=success") ||
		!strings.Contains(lines[1], "\tznode=/a\t") || !strings.HasSuffix(lines[2], "\toperation=serverStop\tresult=invoked") {
		t.Errorf("%s", text)
	}
}

// A file that cannot be opened stops the start, and the message names the line.
func TestAuditFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	cfg := mustLoad(t, file, "dataDir=%s\nclientPort=%d\naudit.enable=true\naudit.file=%s/no/audit.log\n", dir, freePort(t), dir)
	mustFail(t, cfg, file+":4: audit.file: audit: open "+dir+"/no/audit.log: no such file or directory")
}

// The acts of operators beside the client protocol have a line, also when they are refused, and so
// have logins under the name of the super user without the password. The line says which scheme has
// named the user, and whether that is the super user.
func TestOperatorsAreAudited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	s := startReal(t, func(cfg *Config) {
		cfg.Audit.On, cfg.Audit.File, cfg.HTTP.Addr, cfg.Auth.SuperDigest = true, file, "127.0.0.1:0", superDigest
		allWords(cfg)
	})
	const super, guess = "digest super:test", "digest super:guess"
	ask := func(method, path, auth string) {
		r, err := http.NewRequest(method, "http://"+s.HTTPAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if auth != "" {
			r.Header.Set("Authorization", auth)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	var want []string
	expect := func(lines ...string) {
		t.Helper()
		want = append(want, lines...)
		var got []string
		await(t, fmt.Sprintf("%d lines of the audit log", len(want)), func() bool {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			for line := range strings.Lines(string(text)) {
				_, fields, _ := strings.Cut(line, "audit.Slf4jAuditLogger: ")
				if fields = strings.ReplaceAll(strings.TrimSpace(fields), "\t", " "); !strings.Contains(fields, "operation=serverStart") {
					got = append(got, fields)
				}
			}
			return len(got) >= len(want)
		})
		for i, line := range want {
			if _, after, ok := strings.Cut(got[i], "session="); ok { // any
				_, got[i], _ = strings.Cut(after, " ")
			}
			if got[i] != line {
				t.Errorf("line %d is %q, want %q", i, got[i], line)
			}
		}
	}
	const anybody, operator = "user=127.0.0.1 ip=127.0.0.1 ", "user=127.0.0.1,super ip=127.0.0.1 "
	dialReal(t, s).word("srst")
	dialReal(t, s).word("crst")
	expect(anybody+"operation=stat_reset result=success scheme=ip", anybody+"operation=connection_stat_reset result=success scheme=ip")
	ask(http.MethodGet, "/commands/stat_reset", super)
	expect(operator + "operation=stat_reset znode=/ result=success scheme=ip,digest+super")
	ask(http.MethodGet, "/commands/stat_reset", "")
	expect(anybody + "operation=stat_reset znode=/ result=failure scheme=ip")
	ask(http.MethodGet, "/commands/stat_reset", guess)
	expect(anybody+"operation=superLogin result=failure scheme=ip",
		operator+"operation=stat_reset znode=/ result=failure scheme=ip,digest")

	c := dialReal(t, s)
	c.connect(10 * time.Second)
	c.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:guess")})
	c.call(wire.OpCreate, create("/a", nil, wire.ModePersistent))
	expect(anybody+"operation=superLogin result=failure scheme=ip",
		"user=super,127.0.0.1 ip=127.0.0.1 operation=create znode=/a znode_type=persistent result=success scheme=digest,ip")
	c.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
	c.call(wire.OpDelete, wire.DeleteRequest{Path: "/a", Version: -1})
	expect("user=super,super,127.0.0.1 ip=127.0.0.1 operation=delete znode=/a result=success scheme=digest,digest+super,ip")
	if n := s.sessions.Stats().SuperLoginsRefused; n != 2 {
		t.Errorf("%d refused logins since srst", n)
	}

	// Failures that everybody can cause do not make old lines go.
	for range 3 * session.AuditFailures {
		ask(http.MethodGet, "/commands/stat_reset", guess)
	}
	dialReal(t, s).word("srst")
	await(t, "the last line", func() bool {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "operation=stat_reset\tresult=success") == 2
	})
	if text, _ := os.ReadFile(file); strings.Count(string(text), "result=failure") > 2*session.AuditFailures {
		t.Errorf("%d lines of failures", strings.Count(string(text), "result=failure"))
	}
}

// POST /leader has a line.
func TestTransfersAreAudited(t *testing.T) {
	dir := t.TempDir()
	members, _ := startCluster(t, "admin.serverPort=FREE_PORT\nDigestAuthenticationProvider.superDigest="+superDigest+
		"\naudit.enable=true\naudit.file="+dir+"/audit.FREE_PORT\n")
	for _, s := range members {
		awaitServing(t, s)
	}
	for _, auth := range []string{"", "digest super:test"} {
		r, err := http.NewRequest(http.MethodPost, "http://"+members[0].HTTPAddr().String()+"/leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", auth)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	for _, want := range []string{"operation=transferLeadership\tresult=failure\tscheme=ip\n",
		"operation=transferLeadership\tresult=success\tscheme=ip,digest+super\n"} {
		await(t, want, func() bool {
			text, err := os.ReadFile(members[0].cfg.Audit.File)
			return err == nil && strings.Contains(string(text), want)
		})
	}
}
