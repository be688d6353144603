package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/session"
	"lockkeeper/wire"
)

// noon is the time of all lines.
func noon() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 5e6, time.UTC) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func record(path string) *session.AuditRecord {
	return &session.AuditRecord{Session: 0x10, Users: []string{"ann", "::1"}, Addr: "::1",
		Operation: "create", Path: path, Mode: "persistent", Result: session.AuditSuccess}
}

func TestLine(t *testing.T) {
	const front = "2026-11-24 12:00:00,005 INFO audit.Slf4jAuditLogger: "
	cases := map[string]struct {
		record session.AuditRecord
		want   string
	}{
		"create": {*record("/ü=\\ "), front +
			`session=0x10|user=ann,::1|ip=::1|operation=create|znode=/ü=\\ |znode_type=persistent|result=success`},
		"the member": {session.AuditRecord{Operation: "serverStop", Result: session.AuditInvoked}, front +
			"user=zk|operation=serverStop|result=invoked"},
		"refused": {session.AuditRecord{Users: []string{"a"}, Operation: "delete", Result: session.AuditFailure},
			strings.Replace(front, "INFO", "ERROR", 1) + "user=a|operation=delete|result=failure"},
		"ACL": {session.AuditRecord{Users: []string{"a"}, Operation: "setAcl", Result: session.AuditSuccess, ACL: []wire.ACL{
			{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}},
			{Perms: wire.PermRead | wire.PermCreate, ID: wire.ID{Scheme: "sa:sl", ID: "b,world:anyone"}}}},
			front + `user=a|operation=setAcl|acl=world:anyone:cdrwa,sa\u003asl:b\u002cworld:anyone:cr|result=success`},
		"forged": {session.AuditRecord{Users: []string{"x,root\nsession=0x1\tuser=root"}, Operation: "create",
			Path: "/a\tresult=success\r\n\x00\u2028\u202e\xff\U000e0001", Result: session.AuditSuccess},
			front + `user=x\u002croot\u000asession=0x1\u0009user=root|operation=create|` +
				`znode=/a\u0009result=success\u000d\u000a\u0000\u2028\u202e\xff\U000e0001|result=success`},
		"long": {session.AuditRecord{Users: []string{"a"}, Operation: "create", Path: "/" + strings.Repeat("x", 1<<20),
			Result: session.AuditFailure},
			strings.Replace(front, "INFO", "ERROR", 1) + "user=a|operation=create|znode=/" +
				strings.Repeat("x", maxValue-1) + `\...|result=failure`},
	}
	for name, c := range cases {
		want := strings.ReplaceAll(c.want, "|", "\t") + "\n"
		if got := string(appendLine(nil, noon(), &c.record, "zk")); got != want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
}

// Whatever a client chooses, it is one line with the same fields.
func FuzzLine(f *testing.F) {
	f.Add("ann", "/a\n", "x\ty", "world")
	f.Fuzz(func(t *testing.T, user, path, id, scheme string) {
		r := session.AuditRecord{Users: []string{user, "::1"}, Operation: "setAcl", Path: "/" + path, Result: session.AuditFailure,
			ACL: []wire.ACL{{ID: wire.ID{Scheme: scheme, ID: id}}}}
		line := string(appendLine(nil, noon(), &r, "zk"))
		if n := strings.Count(line, "\n"); n != 1 || line[len(line)-1] != '\n' {
			t.Errorf("%d ends of lines in %q", n, line)
		}
		if n := strings.Count(line, "\t"); n != 4 {
			t.Errorf("%d tabs in %q", n, line)
		}
		users, _, _ := strings.Cut(line[strings.Index(line, "user="):], "\t")
		if n := strings.Count(users, ","); n != 1 {
			t.Errorf("%d commas in %q", n, users)
		}
		if len(line) > 6*3*maxValue+1000 {
			t.Errorf("a line of %d bytes", len(line))
		}
	})
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	cfg.User, cfg.Now, cfg.QueueBytes = "zk", noon, max(cfg.QueueBytes, 1<<20)
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Files are as long as they may be and no longer, and every line is in one of them, whole and in
// its order, as long as that one is kept.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	const lines, fileBytes, keep = 100, 2000, 3
	l := open(t, Config{File: path, FileBytes: fileBytes, Files: keep})
	for i := range lines {
		l.Audit(record(fmt.Sprintf("/%03d", i)))
	}
	closeLog(t, l)
	l.Audit(record("/late"))
	if got := l.Stats(); got != (Stats{Lines: lines}) {
		t.Errorf("%+v", got)
	}
	var all strings.Builder
	for i := keep; i >= 0; i-- {
		text := read(t, (&file{path: path}).older(i))
		if len(text) > fileBytes || i > 0 && len(text) < fileBytes-150 {
			t.Errorf("file %d has %d bytes", i, len(text))
		}
		all.WriteString(text)
	}
	got := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	for i, line := range got {
		if want := fmt.Sprintf("znode=/%03d\t", lines-len(got)+i); !strings.Contains(line, want) {
			t.Errorf("no %s in %q", want, line)
		}
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != keep+1 {
		t.Errorf("%d files: %v", len(files), files)
	}

	l = open(t, Config{File: path, FileBytes: 1 << 20, Files: keep})
	l.Audit(record("/more"))
	closeLog(t, l)
	if text := read(t, path); !strings.Contains(text, "/099") || !strings.Contains(text, "/more") {
		t.Errorf("a second start has begun a new file: %q", text)
	}
}

// A rotation that fails again and again removes nothing.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for i, text := range []string{"0", "1", "2"} {
		if err := os.WriteFile((&file{path: path}).older(i), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := openFile(path, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := os.Remove(path); err != nil { // so that it cannot be renamed
			t.Fatal(err)
		}
		if err := f.rotate(); err == nil {
			t.Error("a file that is not there was renamed")
		}
		if err := f.open(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := f.write([]byte("3\n4\n")); n != 4 || err != nil {
		t.Errorf("%d bytes: %v", n, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	for i, want := range map[int]string{0: "4\n", 1: "3\n", 2: "1\n", 3: "2\n"} {
		if got := read(t, f.older(i)); got != want {
			t.Errorf("file %d has %q, want %q", i, got, want)
		}
	}
}

func TestNoFile(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "no", "audit.log"), os.DevNull} {
		if _, err := Open(Config{File: path, Logger: quiet()}); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

// On a full disk lines wait, and the file has no half of one.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounts a small disk: needs root")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mounts a small disk: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	f, err := openFile(filepath.Join(dir, "audit.log"), 1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Repeat([]byte("a line of the log\n"), 400)
	written, err := f.write(lines)
	for err == nil {
		written, err = f.write(lines)
	}
	if text := read(t, f.path); written != 0 || len(text)%len(lines) != 0 {
		t.Errorf("%d bytes were written, the file has %d", written, len(text))
	}
	if err := os.Truncate(f.path, 0); err != nil {
		t.Fatal(err)
	}
	if written, err := f.write(lines); written != len(lines) || err != nil {
		t.Errorf("%d bytes were written: %v", written, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// brokenSink fails until it is repaired.
type brokenSink struct {
	repaired chan struct{}
	lines    strings.Builder
}

func (s *brokenSink) write(lines []byte) (int, error) {
	select {
	case <-s.repaired:
		return s.lines.Write(lines)
	default:
		return 0, errors.New("broken")
	}
}

func (s *brokenSink) close() error { return nil }

// Nobody waits for a log that cannot be written. Lines that fit into the queue are written later;
// the log counts the others.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &brokenSink{repaired: make(chan struct{})}
		l := start(Config{QueueBytes: 500, User: "zk", Now: noon, Logger: quiet()}, s)
		for i := range 10 {
			l.Audit(record(fmt.Sprintf("/%d", i)))
			synctest.Wait()
		}
		if got := l.Stats(); got.Lines != 3 || got.Lost != 7 {
			t.Errorf("%+v", got)
		}
		close(s.repaired)
		time.Sleep(2 * retryAfter) // of the bubble
		l.Audit(record("/10"))
		closeLog(t, l)
		text := s.lines.String()
		for _, want := range []string{"znode=/0", "znode=/1", "znode=/2", "user=zk\toperation=auditLinesLost\tlines=7\tresult=failure\n",
			"znode=/10"} {
			at := strings.Index(text, want)
			if at < 0 {
				t.Fatalf("%q is missing or out of order:\n%s", want, s.lines.String())
			}
			text = text[at+len(want):]
		}
	})
}

// Close ends also when nothing can be written, and says so.
func TestCloseBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(Config{QueueBytes: 1 << 20, Now: noon, Logger: quiet()}, &brokenSink{})
		l.Audit(record("/a"))
		if err := l.Close(); err == nil {
			t.Error("nothing is missing")
		}
	})
}

func TestMembersLog(t *testing.T) {
	var out strings.Builder
	l := open(t, Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	l.Audit(record("/a b"))
	closeLog(t, l)
	want := `level=INFO msg=audit session=0x10 user=ann,::1 ip=::1 operation=create znode="/a b" znode_type=persistent result=success`
	if !strings.Contains(out.String(), want) {
		t.Errorf("got %s", out.String())
	}
}
