package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// program is the program for a platform.
type program struct {
	goos, goarch string
	name         string // of its archive, without a suffix
	path         string // of the executable file
}

// compile compiles the program for a platform, below the directory work.
func (r *release) compile(ctx context.Context, platform, work string) (program, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	p := program{goos, goarch, fmt.Sprintf("lockkeeper-%s-%s-%s", r.version, goos, goarch),
		filepath.Join(work, goos+"-"+goarch, "lockkeeper")}
	if goos == "windows" {
		p.path += ".exe"
	}
	module, err := r.modulePath(ctx)
	if err != nil {
		return p, err
	}
	// Nothing of this machine gets into the program: no path, no setting, no C compiler.
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOFLAGS=-mod=readonly", "GOEXPERIMENT=",
		"GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}
	_, err = r.command(ctx, env, "go", "build", "-trimpath", "-buildvcs=false", "-o", p.path, "-ldflags",
		fmt.Sprintf("-s -w -X %[1]s.buildVersion=%[2]s -X %[1]s.buildCommit=%[3]s -X %[1]s.buildDate=%[4]s",
			module+"/server", r.version, r.commit, r.date.Format(time.RFC3339)), "./cmd/lockkeeper")
	return p, err
}

// modulePath is the path of the product's module.
func (r *release) modulePath(ctx context.Context) (string, error) {
	text, err := r.command(ctx, []string{"GOWORK=off"}, "go", "list", "-m")
	return strings.TrimSpace(text), err
}

// generated are the files that the program writes about itself, the same on each platform.
type generated struct {
	manuals     []file // of section 1, compressed
	completions map[string][]byte
	homepage    string // of the module, if its path has a host
}

// generate runs this machine's program, which it compiles if it is not among the programs.
func (r *release) generate(ctx context.Context, programs []program, work string) (g generated, err error) {
	module, err := r.modulePath(ctx)
	if err != nil {
		return g, err
	}
	if host, _, _ := strings.Cut(module, "/"); strings.Contains(host, ".") {
		g.homepage = "https://" + module
	}
	i := slices.IndexFunc(programs, func(p program) bool {
		return p.goos == runtime.GOOS && p.goarch == runtime.GOARCH
	})
	if i < 0 {
		own, err := r.compile(ctx, runtime.GOOS+"/"+runtime.GOARCH, work)
		if err != nil {
			return g, err
		}
		programs, i = []program{own}, 0
	}
	path := programs[i].path
	dir := filepath.Join(work, "man")
	if _, err := r.command(ctx, nil, path, "man", dir); err != nil {
		return g, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return g, err
	}
	for _, entry := range list {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return g, err
		}
		g.manuals = append(g.manuals, file{entry.Name() + ".gz", 0o644, compressed(text)})
	}
	g.completions = map[string][]byte{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := r.command(ctx, nil, path, "completion", shell)
		if err != nil {
			return g, err
		}
		g.completions[shell] = []byte(text)
	}
	return g, nil
}

// compressed is a text as gzip -9n writes it: without a name and a time.
func compressed(text []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer takes all
	}
	return out.Bytes()
}

// licenseFile matches the files of a module that go with every copy of it.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// thirdParty is the name of the file with the licences of others.
const thirdParty = "third-party-licenses.txt"

// licenses is a file with the licences of Go and of all modules in a program.
func (r *release) licenses(ctx context.Context, p program) (file, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return file{}, err
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}
	text, err := r.command(ctx, env, "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all")
	if err != nil {
		return file{}, err
	}
	dirs := map[string]string{}
	for line := range strings.Lines(text) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	root, err := r.command(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return file{}, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "lockkeeper has the licence in LICENSE. It contains the following modules.\n")
	add := func(name, dir string) error {
		list, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		found := false
		for _, entry := range list {
			if entry.IsDir() || !licenseFile.MatchString(entry.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			found = true
			fmt.Fprintf(&out, "\n%[1]s\n%[2]s: %[3]s\n%[1]s\n\n%[4]s\n",
				strings.Repeat("=", 80), name, entry.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return fmt.Errorf("%s has no licence in %s", name, dir)
		}
		return nil
	}
	err = add("Go "+strings.TrimPrefix(info.GoVersion, "go"), strings.TrimSpace(root))
	for _, dep := range info.Deps {
		err = errors.Join(err, add(dep.Path+" "+dep.Version, dirs[dep.Path]))
	}
	return file{thirdParty, 0o644, out.Bytes()}, err
}
