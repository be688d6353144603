package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are the targets of a release, as GOOS/GOARCH.
var platforms = []string{
	"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64",
}

// release is a release to build.
type release struct {
	module  string // the directory of the sources
	out     string // the directory of the results
	version string
	commit  string
	date    time.Time // of the commit, and of all files in the archives
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	var only string
	var dirty bool
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.module, "module", ".", "`directory` of the sources")
	fs.StringVar(&r.out, "out", "dist", "`directory` of the results, which must be empty or not be there")
	fs.StringVar(&r.version, "version", "", "`version` without a v, such as 0.1.0")
	fs.StringVar(&only, "only", strings.Join(platforms, ","), "`platforms` to build for")
	fs.BoolVar(&dirty, "dirty", false, "build although there are changes that are not committed: not for a release")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || r.version == "" || strings.HasPrefix(r.version, "v") {
		return errors.New("-version is needed, without a v, and there are no arguments")
	}
	if list, err := os.ReadDir(r.out); err == nil && len(list) > 0 {
		return fmt.Errorf("%s is not empty", r.out)
	}
	chosen := strings.Split(only, ",")
	for _, p := range chosen {
		if !slices.Contains(platforms, p) {
			return fmt.Errorf("-only: %q is not one of %s", p, strings.Join(platforms, ", "))
		}
	}
	if err := r.readCommit(ctx, dirty); err != nil {
		return err
	}
	return r.build(ctx, chosen)
}

// readCommit sets commit and date.
func (r *release) readCommit(ctx context.Context, dirty bool) error {
	changes, err := r.command(ctx, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !dirty {
		return fmt.Errorf("there are changes that are not committed:\n%s", changes)
	}
	text, err := r.command(ctx, nil, "git", "show", "-s", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, stamp, _ := strings.Cut(strings.TrimSpace(text), " ")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	r.commit, r.date = commit, time.Unix(seconds, 0).UTC()
	return err
}

// command runs a program in the directory of the sources and returns its output.
func (r *release) command(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.module, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, cmp.Or(args...), err, stderr.String())
	}
	return string(out), err
}

// build builds the archives and lists, and writes their checksums last.
func (r *release) build(ctx context.Context, platforms []string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var names []string
	for _, p := range platforms {
		made, err := r.buildFor(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		names = append(names, made...)
	}
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// buildFor builds for a platform, and returns the names of the files.
func (r *release) buildFor(ctx context.Context, platform string) ([]string, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	program := "lockkeeper"
	if goos == "windows" {
		program += ".exe"
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, program)
	module, err := r.command(ctx, []string{"GOWORK=off"}, "go", "list", "-m")
	if err != nil {
		return nil, err
	}
	server := strings.TrimSpace(module) + "/server"
	// Nothing of this machine gets into the program: no path, no setting, no C compiler.
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOFLAGS=-mod=readonly", "GOEXPERIMENT=",
		"GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0"}
	_, err = r.command(ctx, env, "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "-ldflags",
		fmt.Sprintf("-s -w -X %[1]s.buildVersion=%[2]s -X %[1]s.buildCommit=%[3]s -X %[1]s.buildDate=%[4]s", server,
			r.version, r.commit,
			r.date.Format(time.RFC3339)), "./cmd/lockkeeper")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("lockkeeper-%s-%s-%s", r.version, goos, goarch)
	list, err := r.components(binary, name)
	if err != nil {
		return nil, err
	}
	files, err := r.files(binary, program)
	if err != nil {
		return nil, err
	}
	archive, pack := name+".tar.gz", r.packTar
	if goos == "windows" {
		archive, pack = name+".zip", r.packZip
	}
	var packed bytes.Buffer
	if err := pack(&packed, name, files); err != nil {
		return nil, err
	}
	made := []string{archive, name + ".cdx.json"}
	return made, errors.Join(os.WriteFile(filepath.Join(r.out, made[0]), packed.Bytes(), 0o644),
		os.WriteFile(filepath.Join(r.out, made[1]), list, 0o644))
}

// file is a file of an archive.
type file struct {
	name string // with slashes
	mode fs.FileMode
	data []byte
}

// shipped are the files beside the program, as patterns.
var shipped = []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "docs/grafana.json",
	"docs/*.yml",
	"docs/*.yaml", "deploy/*"}

// files are the content of an archive, in the order of their names.
func (r *release) files(binary, program string) (files []file, err error) {
	add := func(from, name string, mode fs.FileMode) error {
		data, err := os.ReadFile(from)
		files = append(files, file{name, mode, data})
		return err
	}
	if err := add(binary, program, 0o755); err != nil {
		return nil, err
	}
	for _, pattern := range shipped {
		found, err := filepath.Glob(filepath.Join(r.module, pattern))
		if err != nil {
			return nil, err
		}
		for _, from := range found {
			name, err := filepath.Rel(r.module, from)
			if err != nil {
				return nil, err
			}
			if info, err := os.Stat(from); err != nil || info.IsDir() || strings.HasSuffix(name, ".go") {
				continue
			}
			if err := add(from, filepath.ToSlash(name), 0o644); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

func (r *release) packTar(w io.Writer, dir string, files []file) error {
	zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		err := archive.WriteHeader(&tar.Header{Name: path.Join(dir, f.name), Mode: int64(f.mode),
			Size:    int64(len(f.data)),
			ModTime: r.date, Format: tar.FormatPAX})
		if err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

func (r *release) packZip(w io.Writer, dir string, files []file) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: path.Join(dir, f.name), Method: zip.Deflate, Modified: r.date}
		header.SetMode(f.mode)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}
