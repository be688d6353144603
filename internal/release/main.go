package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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
	module     string // the directory of the sources
	out        string // the directory of the results
	version    string
	commit     string
	date       time.Time // of the commit, and of all files in the archives and packages
	maintainer string    // of the packages, as NAME <ADDRESS>: the committer
	key        string    // the file of an SSH key that signs the checksums; empty for none
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
	fs.StringVar(&r.module, "module", "../..", "`directory` of the sources")
	fs.StringVar(&r.out, "out", "",
		"`directory` of the results, which must be empty or missing (default: dist in -module)")
	fs.StringVar(&r.version, "version", "", "`version` without a v, such as 0.1.0")
	fs.StringVar(&only, "only", strings.Join(platforms, ","), "`platforms` to build for")
	fs.StringVar(&r.key, "key", "",
		"`file` of an SSH key that signs the checksums, or of its public half, with the key in ssh-agent")
	fs.BoolVar(&dirty, "dirty", false,
		"build although there are changes that are not committed, or pages of another version: not for a release")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || r.version == "" || strings.HasPrefix(r.version, "v") {
		return errors.New("-version is needed, without a v, and there are no arguments")
	}
	r.out = cmp.Or(r.out, filepath.Join(r.module, "dist"))
	if list, err := os.ReadDir(r.out); err == nil && len(list) > 0 {
		return fmt.Errorf("%s is not empty", r.out)
	}
	chosen := strings.Split(only, ",")
	for _, p := range chosen {
		if !slices.Contains(platforms, p) {
			return fmt.Errorf("-only: %q is not one of %s", p, strings.Join(platforms, ", "))
		}
	}
	if r.key != "" {
		if _, err := os.Stat(r.key); err != nil {
			return fmt.Errorf("-key: %w", err)
		}
	}
	if err := errors.Join(r.readCommit(ctx, dirty), r.checkVersion(dirty)); err != nil {
		return err
	}
	return r.build(ctx, chosen)
}

// readCommit sets commit, date and maintainer.
func (r *release) readCommit(ctx context.Context, dirty bool) error {
	changes, err := r.command(ctx, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !dirty {
		return fmt.Errorf("there are changes that are not committed:\n%s", changes)
	}
	text, err := r.command(ctx, nil, "git", "show", "-s", "--format=%H%n%ct%n%cn <%ce>")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 3 {
		return fmt.Errorf("git show: %q", text)
	}
	seconds, err := strconv.ParseInt(lines[1], 10, 64)
	r.commit, r.date, r.maintainer = lines[0], time.Unix(seconds, 0).UTC(), lines[2]
	return err
}

// checkVersion compares the version with the heading of the changelog and with the image that the
// chart names.
func (r *release) checkVersion(dirty bool) (err error) {
	for name, line := range map[string]string{
		"CHANGELOG.md":                      "## " + r.version,
		"deploy/helm/lockkeeper/Chart.yaml": fmt.Sprintf("appVersion: %q", r.version),
	} {
		text, err2 := os.ReadFile(filepath.Join(r.module, filepath.FromSlash(name)))
		if err2 == nil && !dirty && !slices.Contains(strings.Split(string(text), "\n"), line) {
			err2 = fmt.Errorf("%s has no line %s", name, line)
		}
		err = errors.Join(err, err2)
	}
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

// build builds the archives, packages, lists and the image, and writes their checksums last.
func (r *release) build(ctx context.Context, platforms []string) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var programs []program
	for _, platform := range platforms {
		p, err := r.compile(ctx, platform, work)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		programs = append(programs, p)
	}
	made, err := r.generate(ctx, programs, work)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := r.pack(ctx, p, made, work); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := r.image(programs, made, work); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.sum(); err != nil {
		return err
	}
	return r.sign(ctx)
}

// pack writes the files of a platform: its archive, the list of its modules, and for Linux its
// packages.
func (r *release) pack(ctx context.Context, p program, made generated, work string) error {
	list, err := r.components(p)
	if err != nil {
		return err
	}
	licenses, err := r.licenses(ctx, p)
	if err != nil {
		return err
	}
	files, err := r.files(p)
	if err != nil {
		return err
	}
	pages := append(files, licenses)
	if err := r.archive(p, pages); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, p.name+".cdx.json"), list, 0o644); err != nil {
		return err
	}
	if p.goos != "linux" {
		return nil
	}
	return r.packages(p, pages, made, filepath.Join(work, "packages-"+p.goarch))
}

// sums is the file with the checksums of all others.
const sums = "SHA256SUMS"

// sum writes the checksums of all results.
func (r *release) sum() error {
	list, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range list {
		data, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sums), []byte(text.String()), 0o644)
}

// sign signs the checksums with the key, if there is one, in OpenSSH's format. ssh-keygen knows
// keys with a passphrase, in an agent and in hardware.
func (r *release) sign(ctx context.Context) error {
	if r.key == "" {
		return nil
	}
	key, err := filepath.Abs(r.key)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", sums)
	cmd.Dir, cmd.Stdin = r.out, os.Stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen -Y sign: %w: %s", err, out)
	}
	return nil
}
