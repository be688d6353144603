package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// The audit log begins with the start of a member and ends with its stop.
func TestAuditFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	s := startReal(t, func(cfg *Config) {
		cfg.Audit, cfg.AuditFile = true, file
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
