package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// system is a Debian of its own: the essential packages of this machine's, systemd, and what they
// depend on, in a directory. Commands run in it as root, in namespaces.
type system struct{ root string }

// newSystem copies a system from this machine.
func newSystem(t *testing.T) system {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("installs packages below another root directory: needs root")
	}
	for _, tool := range []string{"dpkg-query", "systemctl", "unshare", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	s := system{t.TempDir()}
	packages := closure(t)
	s.copyFiles(t, packages)
	s.copyDatabase(t, packages)
	s.run(t, "ldconfig")
	return s
}

func (s system) path(name string) string { return filepath.Join(s.root, name) }

// read is the text of a file of the system.
func (s system) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// exists says whether there is a file of the system.
func (s system) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// run runs a script of the shell in the system.
func (s system) run(t *testing.T, script string) string {
	t.Helper()
	return s.around(t, "chroot \"$ROOT\" /bin/sh -ec '"+strings.ReplaceAll(script, "'", `'\''`)+"'")
}

// around runs a script on this machine, with the system in $ROOT, its /proc and its /dev.
func (s system) around(t *testing.T, script string) string {
	t.Helper()
	return s.inside(t, `mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/dev"
for f in null zero random urandom; do touch "$ROOT/dev/$f"; mount --bind "/dev/$f" "$ROOT/dev/$f"; done
`+script)
}

// inside runs a script in namespaces of its own, with the system in $ROOT and a network that has
// nothing but loopback. All that it starts ends with it.
func (s system) inside(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child",
		"bash", "-ec", "ip link set lo up\n"+script)
	cmd.Env = []string{"ROOT=" + s.root, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// closure are the installed packages that the essential ones and systemd need, with themselves.
func closure(t *testing.T) (packages []string) {
	t.Helper()
	provider, depends := map[string]string{}, map[string][]string{}
	var todo []string
	const format = "${binary:Package}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\t${db:Status-Status}\n"
	for line := range strings.Lines(output(t, "dpkg-query", "-W", "-f", format)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 || f[5] != "installed" {
			continue
		}
		name, _, _ := strings.Cut(f[0], ":")
		for _, virtual := range strings.Split(f[3], ",") {
			if virtual = first(virtual); virtual != "" {
				provider[virtual] = f[0]
			}
		}
		provider[name] = f[0]
		depends[f[0]] = strings.Split(f[4], ",")
		if f[1] == "yes" || name == "systemd" || name == "passwd" {
			todo = append(todo, f[0])
		}
	}
	seen := map[string]bool{}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		packages = append(packages, p)
		for _, d := range depends[p] {
			for _, alternative := range strings.Split(d, "|") {
				if found := provider[first(alternative)]; found != "" {
					todo = append(todo, found)
					break
				}
			}
		}
	}
	return packages
}

// first is the name of a package in a relation such as "libc6:any (>= 2.34)".
func first(relation string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(relation), " ")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// copyFiles copies the files of packages, without their pages.
func (s system) copyFiles(t *testing.T, packages []string) {
	t.Helper()
	list := output(t, "dpkg-query", append([]string{"-L"}, packages...)...)
	dirs := map[string]string{} // as the packages name them, and as they are
	seen := map[string]bool{}
	var names bytes.Buffer
	add := func(path string) {
		dir := filepath.Dir(path)
		if _, ok := dirs[dir]; !ok {
			real, err := filepath.EvalSymlinks(dir)
			if err != nil {
				return // such as a file that a dpkg of a container leaves out
			}
			dirs[dir] = real
		}
		path = filepath.Join(dirs[dir], filepath.Base(path))
		if info, err := os.Lstat(path); err != nil || seen[path] || path == "/" {
			return
		} else if info.IsDir() {
			path += "/"
		}
		seen[path] = true
		names.WriteString(path + "\x00")
	}
	for line := range strings.Lines(list) {
		path := strings.TrimSpace(line)
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/usr/share/doc/") || strings.HasPrefix(path, "/usr/share/locale/") ||
			strings.HasPrefix(path, "/usr/share/man/") || strings.HasPrefix(path, "/usr/share/zoneinfo/") {
			continue
		}
		add(path)
	}
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib64", "/usr/bin/awk"} {
		add(link)
	}
	alternatives, err := filepath.Glob("/etc/alternatives/*")
	if err != nil {
		t.Fatal(err)
	}
	add("/etc/alternatives")
	for _, link := range alternatives {
		add(link)
	}
	copying := exec.Command("sh", "-c", `tar -C / -cf - --no-recursion --null -T - 2>/dev/null | tar -C "$1" -xf -`, "sh", s.root)
	copying.Stdin = &names
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dir := range []string{"/proc", "/dev", "/tmp", "/run", "/var/log", "/etc"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"passwd", "group"} {
		text, err := os.ReadFile("/usr/share/base-passwd/" + name + ".master")
		if err == nil {
			err = os.WriteFile(s.path("/etc/"+name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// copyDatabase tells the system's dpkg which packages it has.
func (s system) copyDatabase(t *testing.T, packages []string) {
	t.Helper()
	const db = "/var/lib/dpkg/"
	files := []string{db + "info/format"} // of the names in this directory
	for _, p := range packages {
		found, err := filepath.Glob(db + "info/" + p + ".*")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, name := range []string{"info", "updates", "triggers", "alternatives", "parts"} {
		if err := os.MkdirAll(s.path(db+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range files {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(s.path(from), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	status := output(t, "dpkg-query", append([]string{"-s"}, packages...)...)
	if err := os.WriteFile(s.path(db+"status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
}

// output is what a program of this machine prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, stderr.String())
	}
	return string(out)
}
