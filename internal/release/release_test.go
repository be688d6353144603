package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
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
	"testing"
	"time"
)

// TestRelease builds this machine's platform twice, from two directories: all bytes are equal, and
// the archive has what it should.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program; not with -short")
	}
	date := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	platform := runtime.GOOS + "/" + runtime.GOARCH
	var outs []string
	for _, module := range []string{"../..", copied(t, "../..")} {
		r := release{module: module, out: filepath.Join(t.TempDir(), "dist"), version: "1.2.3", commit: strings.Repeat("0123abcd", 5), date: date}
		if err := r.build(context.Background(), []string{platform}); err != nil {
			t.Fatal(err)
		}
		outs = append(outs, r.out)
	}
	name := fmt.Sprintf("lockkeeper-1.2.3-%s-%s", runtime.GOOS, runtime.GOARCH)
	sums := read(t, outs[0], "SHA256SUMS")
	if again := read(t, outs[1], "SHA256SUMS"); !bytes.Equal(sums, again) {
		t.Errorf("two builds differ:\n%s\n%s", sums, again)
	}
	packed := read(t, outs[0], name+".tar.gz")
	if want := fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256(packed), name); !strings.Contains(string(sums), want) ||
		strings.Count(string(sums), "\n") != 2 {
		t.Errorf("the checksums lack %s:\n%s", want, sums)
	}
	dir := t.TempDir()
	files := unpack(t, packed, dir)
	for _, want := range []string{"LICENSE", "README.md", "deploy/Dockerfile", "deploy/lockkeeper.service", "docs/operations.md"} {
		if !files[name+"/"+want].Equal(date) {
			t.Errorf("%s: %v", want, files[name+"/"+want])
		}
	}
	out, err := exec.Command(filepath.Join(dir, name, "lockkeeper"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "lockkeeper 1.2.3\ncommit     0123abcd0123") ||
		!strings.Contains(string(out), "date       2026-01-31 12:00 UTC\n") {
		t.Errorf("%v: %s", err, out)
	}
	checkComponents(t, read(t, outs[0], name+".cdx.json"))
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

// copied is a copy of the sources in another directory.
func copied(t *testing.T, module string) string {
	t.Helper()
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
		`"plan9/mips" is not one`: {"-version", "1", "-out", full + "/new", "-only", "plan9/mips"},
	} {
		if err := run(context.Background(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
