package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// built is a release for this machine's platform, which the tests share.
var built = sync.OnceValues(func() (r release, err error) {
	dir, err := os.MkdirTemp("", "lockkeeper-release")
	if err != nil {
		return r, err
	}
	builtDir = dir
	if r, err = newRelease("../..", filepath.Join(dir, "dist")); err != nil {
		return r, err
	}
	return r, r.build(context.Background(), []string{platform})
})

// builtDir is where built has worked; empty if it has not.
var builtDir string

func TestMain(m *testing.M) {
	status := m.Run()
	if builtDir != "" {
		_ = os.RemoveAll(builtDir)
	}
	os.Exit(status)
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

// released is the release that the tests share; the test fails if it cannot be built.
func released(t *testing.T) release {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program; not with -short")
	}
	r, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newRelease is a release with fixed values, with a key beside its results.
func newRelease(module, out string) (release, error) {
	r := release{module: module, out: out, version: "1.2.3", commit: strings.Repeat("0123abcd", 5),
		date: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), maintainer: "A. Maintainer <a@example.org>", key: out + ".key"}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return r, err
	}
	text, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", r.key).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ssh-keygen: %w: %s", err, text)
	}
	return r, err
}

// TestRelease builds this machine's platform twice, from two directories: all bytes are equal, and
// the archive has what it should.
func TestRelease(t *testing.T) {
	first := released(t)
	again := first
	again.module, again.out = sources(t), filepath.Join(t.TempDir(), "dist")
	if err := again.build(t.Context(), []string{platform}); err != nil {
		t.Fatal(err)
	}
	compare(t, first.out, again.out)
	name := fmt.Sprintf("lockkeeper-1.2.3-%s-%s", runtime.GOOS, runtime.GOARCH)
	packed := read(t, first.out, name+".tar.gz")
	dir := t.TempDir()
	files := unpack(t, packed, dir)
	for _, want := range []string{"LICENSE", "README.md", "deploy/Dockerfile", "deploy/lockkeeper.service", "docs/operations.md"} {
		if !files[name+"/"+want].Equal(first.date) {
			t.Errorf("%s: %v", want, files[name+"/"+want])
		}
	}
	out, err := exec.Command(filepath.Join(dir, name, "lockkeeper"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "lockkeeper 1.2.3\ncommit     0123abcd0123") ||
		!strings.Contains(string(out), "date       2026-01-31 12:00 UTC\n") {
		t.Errorf("%v: %s", err, out)
	}
	checkComponents(t, read(t, first.out, name+".cdx.json"))
	licenses := read(t, filepath.Join(dir, name), "third-party-licenses.txt")
	for _, want := range []string{"Redistributions in binary form", "Go " + strings.TrimPrefix(runtime.Version(), "go") + ": LICENSE\n",
		"github.com/hashicorp/raft v1", "Mozilla Public License, version 2.0"} {
		if !bytes.Contains(licenses, []byte(want)) {
			t.Errorf("the licences lack %q", want)
		}
	}
}

// compare fails for each file that two builds have not alike.
func compare(t *testing.T, a, b string) {
	t.Helper()
	if fmt.Sprint(names(t, a)) != fmt.Sprint(names(t, b)) {
		t.Errorf("two builds have other files: %v %v", names(t, a), names(t, b))
	}
	for _, name := range names(t, a) {
		if !bytes.Equal(read(t, a, name), read(t, b, name)) {
			t.Errorf("two builds differ in %s", name)
		}
	}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestSums checks a release as docs/release.md says, and then one with a byte that somebody else
// has changed.
func TestSums(t *testing.T) {
	r := released(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(r.out)); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(r.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "signers"), []byte("lockkeeper "+string(key)), 0o644); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		cmd := exec.Command("sh", "-ec", `ssh-keygen -Y verify -f signers -I lockkeeper -n file -s SHA256SUMS.sig <SHA256SUMS
			if command -v sha256sum; then sha256sum -c --strict SHA256SUMS; else shasum -a 256 -c SHA256SUMS; fi`)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(string(read(t, dir, sums)), "\n"), len(names(t, r.out))-2; got != want {
		t.Errorf("%d checksums of %d files", got, want)
	}
	for _, name := range []string{sums, fmt.Sprintf("lockkeeper-1.2.3-%s-%s.cdx.json", runtime.GOOS, runtime.GOARCH)} {
		text := read(t, dir, name)
		text[len(text)/2] ^= 1
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := check(); err == nil {
			t.Errorf("%s is another one, and the check passes", name)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkComponents: the list has the modules that the server cannot do without, with their versions
// of go.mod.
func checkComponents(t *testing.T, text []byte) {
	t.Helper()
	var list bom
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, c := range list.Components {
		if c.PURL != "pkg:golang/"+c.Name+"@"+c.Version || versions[c.Name] != "" {
			t.Errorf("%+v", c)
		}
		versions[c.Name] = c.Version
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"github.com/hashicorp/raft", "go.etcd.io/bbolt", "github.com/go-zookeeper/zk"} {
		if !strings.Contains(string(mod), name+" "+versions[name]) {
			t.Errorf("%s is listed with version %q", name, versions[name])
		}
	}
	if versions["std"] == "" || list.Format != "CycloneDX" || list.Metadata.Component.Version != "1.2.3" {
		t.Errorf("%s", text)
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unpack unpacks an archive, and returns the times of its files.
func unpack(t *testing.T, packed []byte, dir string) map[string]time.Time {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]time.Time{}
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.ModTime
		data, err := io.ReadAll(archive)
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, fs.FileMode(h.Mode))); err != nil {
			t.Fatal(err)
		}
	}
}

// sources is a copy of the sources in another directory.
func sources(t *testing.T) string {
	t.Helper()
	const module = "../.."
	to := t.TempDir()
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(module, path)
		if err != nil {
			return err
		}
		switch {
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestZip(t *testing.T) {
	r := release{date: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	var first, second bytes.Buffer
	files := []file{{"a/b", 0o644, []byte("text")}, {"lockkeeper.exe", 0o755, []byte("program")}}
	if err := errors.Join(r.packZip(&first, "dir", files), r.packZip(&second, "dir", files)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives differ")
	}
	archive, err := zip.NewReader(bytes.NewReader(first.Bytes()), int64(first.Len()))
	if err != nil {
		t.Fatal(err)
	}
	program := archive.File[1]
	if len(archive.File) != 2 || program.Name != "dir/lockkeeper.exe" || program.Mode() != 0o755 || !program.Modified.Equal(r.date) {
		t.Errorf("%+v", program)
	}
}

func TestRefusals(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"-version is needed":      {},
		"without a v":             {"-version", "v1"},
		"is not empty":            {"-version", "1", "-out", full},
		"no such file":            {"-version", "1", "-out", full + "/new", "-key", full + "/key"},
		`"plan9/mips" is not one`: {"-version", "1", "-out", full + "/new", "-only", "plan9/mips"},
	} {
		if err := run(context.Background(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
