package main

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/server"
)

// TestVersionOfABuild builds the command as a packager does, as a developer does with
// -buildvcs=false, and compares the version that it prints and shows to clients.
func TestVersionOfABuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command; not with -short")
	}
	pkg := reflect.TypeFor[server.Server]().PkgPath()
	rest := "compiler   " + runtime.Version() + "\nprotocol   ZooKeeper 3.9.5\n"
	for name, c := range map[string]struct {
		flags   string
		version string
		srvr    string
	}{
		"packager": {"-X " + pkg + ".buildVersion=9.8.7 -X " + pkg + ".buildCommit=0123456789abcdef -X " + pkg + ".buildDate=2026-02-11T00:00:00+01:00",
			"lockkeeper 9.8.7\ncommit     0123456789abcdef\ndate       2026-02-10 23:00 UTC\n", "3.9.5-lockkeeper-9.8.7-0123456789ab, built on 02/10/2026 23:00 GMT"},
		"nothing known": {"", "lockkeeper " + server.Version + "\ncommit     unknown\ndate       unknown\n",
			"3.9.5-lockkeeper-" + server.Version + ", built on 01/01/1970 00:00 GMT"},
	} {
		t.Run(name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "lockkeeper")
			if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", c.flags, "-o", binary, ".").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := exec.Command(binary, "version").Output()
			if err != nil || string(out) != c.version+rest {
				t.Errorf("%v, version says\n%swant\n%s", err, out, c.version+rest)
			}
			p := (&user{t: t}).startBinary(binary, t.TempDir(), "-client-address", "127.0.0.1:0")
			m := regexp.MustCompile(`listens on (\S+),`).FindStringSubmatch(p.line())
			if m == nil {
				t.Fatal("it does not say where it listens")
			}
			got := word(t, m[1], "srvr")
			for deadline := time.Now().Add(time.Minute); strings.Contains(got, "not currently serving") && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				got = word(t, m[1], "srvr")
			}
			if want := "Zookeeper version: " + c.srvr + "\n"; !strings.HasPrefix(got, want) {
				t.Errorf("srvr says %q, want %q", got, want)
			}
			if status := p.signal(syscall.SIGTERM); status != exitOK {
				t.Errorf("status %d", status)
			}
		})
	}
}

// A program with a dynamic linker is not static; the shell of a Linux system has one.
func TestStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads a program of Linux")
	}
	err := checkStatic("/bin/sh")
	if err == nil || !strings.Contains(err.Error(), "linked to a C library, by /lib") {
		t.Errorf("/bin/sh: %v", err)
	}
	if err := checkStatic(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a program that is not there is static")
	}
}
