package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRenameModule gives a copy of the module another path, and its image another name: it builds,
// its tests find all packages that they import, nothing names the old path, and a module elsewhere
// that imports the recipes gets no sums of what only servers need. It gets those of what the tests
// of the recipes need.
func TestRenameModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the module under another name; not with -short")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing: rename-module asks it for the files")
	}
	dir, user := t.TempDir(), t.TempDir()
	copyTracked(t, dir)
	const path = "example.org/team/lockkeeper"
	const image = "registry.example.org/team/lockkeeper"
	run(t, dir, "./rename-module", path, image)
	if got := run(t, dir, "go", "list", "-m"); got != path+"\n" {
		t.Errorf("the module is %s", got)
	}
	run(t, dir, "go", "list", "-test", "-deps", "./...") // fails on an import that is not there
	for _, nested := range []string{"jepsen", "cmd/jepsen", "deploy/check", "internal/release"} {
		if text, err := os.ReadFile(filepath.Join(dir, nested, "go.mod")); err != nil || strings.Contains(string(text), "\n\tlockkeeper") ||
			!strings.HasPrefix(string(text), "module "+path+"/"+nested+"\n") {
			t.Errorf("%s/go.mod: %v\n%.200s", nested, err, text)
		}
	}
	old := run(t, dir, "git", "grep", "-lF", `"lockkeeper/wire"`, "--", ".", ":!internal/tidy")
	if old != "" {
		t.Errorf("the old path is in %s", old)
	}
	if old := run(t, dir, "git", "grep", "-lF", "go install ./cmd/", "--", "README.md", "docs"); old != "" {
		t.Errorf("a clone installs the program in %s", old)
	}
	for name, line := range map[string]string{
		"deploy/compose.yaml":                "  image: " + image + "\n",
		"deploy/kubernetes.yaml":             "          image: " + image + ":",
		"deploy/helm/lockkeeper/values.yaml": "  repository: " + image + "\n",
		"internal/release/image.go":          "const imageName = \"" + image + "\"\n",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "\n"+line) {
			t.Errorf("%s does not have the image's name: %v", name, err)
		}
	}

	run(t, user, "go", "mod", "init", "example.com/user")
	run(t, user, "go", "mod", "edit", "-require="+path+"@v0.0.0", "-replace="+path+"="+dir)
	main := "package main\n\nimport _ \"" + path + "/recipes\"\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(user, "main.go"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, user, "go", "mod", "tidy")
	run(t, user, "go", "build", "./...")
	sums, err := os.ReadFile(filepath.Join(user, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		module, _, _ := strings.Cut(line, " ")
		if module != "github.com/go-zookeeper/zk" {
			t.Errorf("who imports the recipes needs %s", line)
		}
	}
}

// copyTracked copies the files that git knows, as they are in the working copy, into a repository
// of its own.
func copyTracked(t *testing.T, dir string) {
	t.Helper()
	for name := range strings.Lines(run(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard")) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		info, err2 := os.Stat(filepath.Join(root, name))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
}

// run runs a command and returns what it prints. git grep that finds nothing is no failure.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	// What it needs is in the module cache, because these tests were built with it.
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GOPROXY=off", "GONOSUMDB=*")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && !(name == "git" && args[0] == "grep") {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
