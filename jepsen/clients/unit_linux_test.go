package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lockkeeper/jepsen"
)

// TestLocksUnit has systemd run the unit of docs/locks.md, as process 1 of namespaces of its own.
// The process that holds the lock is killed: the one that systemd starts in its place holds it,
// with the same token. A stop of the unit is no failure, and gives the lock back.
func TestLocksUnit(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("systemd as process 1 needs root")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("needs /lib/systemd/systemd (apt-get install systemd)")
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	page, err := os.ReadFile("../../docs/locks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, unit, ok := strings.Cut(string(page), "\n```ini\n")
	unit, _, _ = strings.Cut(unit, "```")
	dir := t.TempDir()
	file, out := filepath.Join(dir, "unit"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(unit), 0o644); err != nil || !ok {
		t.Fatalf("the page has the unit %q, %v", unit, err)
	}
	for _, d := range []string{out, filepath.Join(dir, "root")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork",
		"--kill-child", "bash", "testdata/systemd.sh")
	cmd.Env = append(os.Environ(), "ROOT="+filepath.Join(dir, "root"), "OUT="+out, "UNIT="+file, "LOCKKEEPER="+target.Tool().Path)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	report, err := os.ReadFile(filepath.Join(out, "report"))
	if err != nil {
		t.Fatal(err)
	}
	log, _ := os.ReadFile(filepath.Join(out, "log"))
	want := regexp.MustCompile(`^token (\d+) resumed false
token (\d+) resumed true
restarts 1
stopped inactive
no directory
nobody holds or waits for a lock
`)
	if found := want.FindSubmatch(report); found == nil || string(found[1]) != string(found[2]) {
		t.Errorf("the unit was run:\n%s\n%s", report, log)
	}
}
