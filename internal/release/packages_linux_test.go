package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// clientScript is a shell script for system.inside. It waits for a server at port 2181, takes a
// lock with kazoo, notes that in a node, and stops the server, the only job of the shell.
const clientScript = `/usr/bin/python3 - <<'END'
from kazoo.client import KazooClient
c = KazooClient('127.0.0.1:2181', connection_retry=dict(max_tries=-1, delay=0.02, max_delay=0.1))
c.start(timeout=30)
with c.Lock('/locks/report', 'a package'):
    print('locked by', c.Lock('/locks/report').contenders())
print('kept' if c.exists('/kept') else 'empty')
c.ensure_path('/kept')
c.stop()
END
kill %1
wait %1
`

// next makes the packages of the version after the one that is released, with another line in the
// configuration, and returns their directory.
var next = sync.OnceValues(func() (string, error) {
	r, err := built()
	if err != nil {
		return "", err
	}
	work := filepath.Join(builtDir, "work")
	from := os.DirFS(filepath.Join(r.module, "deploy"))
	r.version, r.out = "1.2.4", filepath.Join(builtDir, "next")
	if err := errors.Join(os.Mkdir(r.out, 0o755), os.CopyFS(filepath.Join(work, "deploy"), from)); err != nil {
		return "", err
	}
	p, err := r.compile(context.Background(), platform, work)
	if err != nil {
		return "", err
	}
	made, err := r.generate(context.Background(), []program{p}, work)
	if err != nil {
		return "", err
	}
	pages, err := r.files(p)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(work, "deploy/package/zoo.cfg"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("# new in 1.2.4\n")
	r.module = work
	return r.out, errors.Join(err, f.Close(), r.packages(p, pages, made, filepath.Join(work, "stage")))
})

// put copies a package into a system, and returns its path there.
func (s system) put(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", pattern, found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	name := "/tmp/" + filepath.Base(found[0])
	if err := os.WriteFile(s.path(name), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// checkFiles checks the files of an installed package: the user's and the group's, the pages, the
// completion, and that systemd takes the unit.
func (s system) checkFiles(t *testing.T) {
	t.Helper()
	user := strings.Split(strings.TrimSpace(s.run(t, "getent passwd lockkeeper")), ":")
	if len(user) != 7 || user[5] != "/var/lib/lockkeeper" || !strings.HasSuffix(user[6], "/nologin") {
		t.Fatalf("the user is %q", user)
	}
	for name, want := range map[string]string{
		"/etc/lockkeeper":         "drwxr-x--- 0 " + user[3],
		"/etc/lockkeeper/zoo.cfg": "-rw-r----- 0 " + user[3],
		"/var/lib/lockkeeper":     "drwx------ " + user[2] + " " + user[3],
		"/var/log/lockkeeper":     "drwxr-x--- " + user[2] + " " + user[3],
		"/usr/bin/lockkeeper":     "-rwxr-xr-x 0 0",
	} {
		info, err := os.Lstat(s.path(name))
		if err != nil {
			t.Error(err)
			continue
		}
		owner := info.Sys().(*syscall.Stat_t)
		if got := fmt.Sprintf("%v %d %d", info.Mode(), owner.Uid, owner.Gid); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if out := s.run(t, "systemd-analyze verify --man=no lockkeeper.service"); out != "" {
		t.Errorf("the unit: %s", out)
	}
	s.run(t, `zcat /usr/share/man/man1/lockkeeper-lock.1.gz | grep -q '^.TH'
		lockkeeper config check /etc/lockkeeper/zoo.cfg`)
	if out := s.run(t, `bash -ec '. /usr/share/bash-completion/completions/lockkeeper; complete -p lockkeeper'`); !strings.Contains(out, "lockkeeper") {
		t.Errorf("completion: %s", out)
	}
}

// serve starts the server as the unit says, with the installed configuration, and returns the
// output of a client.
func (s system) serve(t *testing.T) string {
	t.Helper()
	unit := map[string]string{}
	for line := range strings.Lines(s.read(t, "/usr/lib/systemd/system/lockkeeper.service")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		unit[key] = value
	}
	out := s.inside(t, fmt.Sprintf(`chroot "$ROOT" setpriv --reuid=%s --regid=%s --init-groups --no-new-privs \
		--bounding-set=-all sh -c 'umask %s; cd %s; exec %s' &
		%s`, unit["User"], unit["Group"], unit["UMask"], unit["WorkingDirectory"], unit["ExecStart"], clientScript))
	if !strings.Contains(out, "locked by ['a package']") {
		t.Error(out)
	}
	return out
}

// data are the files below the data directory.
func (s system) data(t *testing.T) (list []string) {
	t.Helper()
	dir := s.path("/var/lib/lockkeeper")
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, dir))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	return list
}

// edit appends a line to the configuration, as an administrator does.
func (s system) edit(t *testing.T) (text string) {
	t.Helper()
	text = s.read(t, "/etc/lockkeeper/zoo.cfg") + "maxClientCnxns=7\n"
	if err := os.WriteFile(s.path("/etc/lockkeeper/zoo.cfg"), []byte(text), 0); err != nil {
		t.Error(err)
	}
	return text
}

// TestDebian installs the Debian package, runs the server, upgrades, removes and purges.
func TestDebian(t *testing.T) {
	r := released(t)
	s := newSystem(t)
	const cfg, enabled = "/etc/lockkeeper/zoo.cfg", "/etc/systemd/system/multi-user.target.wants/lockkeeper.service"
	s.run(t, "dpkg -i "+s.put(t, r.out, "lockkeeper_1.2.3-1_*.deb"))
	if out := s.run(t, "dpkg --verify lockkeeper; dpkg --audit lockkeeper"); out != "" {
		t.Error(out)
	}
	s.checkFiles(t)
	if !s.exists(enabled) {
		t.Error("the service is not enabled")
	}
	if out := s.serve(t); !strings.Contains(out, "empty") {
		t.Error(out)
	}

	edited := s.edit(t)
	upgrade, err := next()
	if err != nil {
		t.Fatal(err)
	}
	s.run(t, "dpkg --force-confdef --force-confold -i "+s.put(t, upgrade, "*.deb"))
	if out := s.run(t, "lockkeeper version"); !strings.HasPrefix(out, "lockkeeper 1.2.4\n") {
		t.Error(out)
	}
	if got := s.read(t, cfg); got != edited {
		t.Errorf("the upgrade has changed the configuration: %s", got)
	}
	if got := s.read(t, cfg+".dpkg-dist"); !strings.Contains(got, "new in 1.2.4") {
		t.Errorf("the new configuration: %s", got)
	}
	s.checkFiles(t)
	if out := s.serve(t); !strings.Contains(out, "kept") {
		t.Errorf("the data after the upgrade: %s", out)
	}

	before := s.data(t)
	s.run(t, "dpkg -r lockkeeper")
	if after := s.data(t); len(before) == 0 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the removal leaves %v of %v", after, before)
	}
	if s.exists("/usr/bin/lockkeeper") || s.read(t, cfg) != edited {
		t.Error("the removal leaves the program, or takes the configuration")
	}
	s.run(t, "dpkg -P lockkeeper")
	for _, name := range []string{"/etc/lockkeeper", "/var/lib/lockkeeper", "/var/log/lockkeeper", "/usr/share/doc/lockkeeper", enabled} {
		if s.exists(name) {
			t.Errorf("%s is there after a purge", name)
		}
	}
	s.run(t, "getent passwd lockkeeper; ! dpkg -s lockkeeper 2>&1")
}

// TestRPM does the same with rpm, which runs beside the system and changes its files. Its database
// knows no packages to depend on.
func TestRPM(t *testing.T) {
	r := released(t)
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("needs rpm (apt-get install rpm)")
	}
	s := newSystem(t)
	// The presets of Fedora.
	presets := s.path("/usr/lib/systemd/system-preset")
	if err := os.MkdirAll(presets, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(presets, "99-default-disable.preset"), []byte("disable *\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const cfg, enabled = "/etc/lockkeeper/zoo.cfg", "/etc/systemd/system/multi-user.target.wants/lockkeeper.service"
	first := s.put(t, r.out, "lockkeeper-1.2.3-1.*.rpm")
	needs := s.around(t, `rpm --nosignature -qp --requires "$ROOT`+first+`"`)
	if needs != "shadow-utils\nsystemd\n" {
		t.Errorf("it needs %s", needs)
	}
	s.around(t, `rpm --root "$ROOT" --nodeps -i "$ROOT`+first+`"`)
	if out := s.around(t, `rpm --root "$ROOT" --nodeps -V lockkeeper`); out != "" {
		t.Error(out)
	}
	s.checkFiles(t)
	if s.exists(enabled) {
		t.Error("the service is enabled against the preset")
	}
	if out := s.serve(t); !strings.Contains(out, "empty") {
		t.Error(out)
	}

	s.run(t, "systemctl enable lockkeeper")
	edited := s.edit(t)
	upgrade, err := next()
	if err != nil {
		t.Fatal(err)
	}
	s.around(t, `rpm --root "$ROOT" --nodeps -U "$ROOT`+s.put(t, upgrade, "*.rpm")+`"`)
	if got := s.read(t, cfg); got != edited || !s.exists(enabled) {
		t.Errorf("the upgrade has changed the configuration or the service: %s", got)
	}
	if got := s.read(t, cfg+".rpmnew"); !strings.Contains(got, "new in 1.2.4") {
		t.Errorf("the new configuration: %s", got)
	}
	if out := s.serve(t); !strings.Contains(out, "kept") {
		t.Errorf("the data after the upgrade: %s", out)
	}

	before := s.data(t)
	s.around(t, `rpm --root "$ROOT" --nodeps -e lockkeeper`)
	if after := s.data(t); len(before) == 0 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the removal leaves %v of %v", after, before)
	}
	if s.exists("/usr/bin/lockkeeper") || s.exists(enabled) || s.read(t, cfg+".rpmsave") != edited {
		t.Error("the removal leaves the program or the service, or takes the configuration")
	}
}

// TestArchitectures: the packages have the names that each distribution has for an architecture.
func TestArchitectures(t *testing.T) {
	want := map[string][2]string{"amd64": {"amd64", "x86_64"}, "arm64": {"arm64", "aarch64"}}[runtime.GOARCH]
	list := fmt.Sprint(names(t, released(t).out))
	for _, name := range []string{"lockkeeper_1.2.3-1_" + want[0] + ".deb", "lockkeeper-1.2.3-1." + want[1] + ".rpm"} {
		if !strings.Contains(list, name) {
			t.Errorf("no %s in %s", name, list)
		}
	}
}
