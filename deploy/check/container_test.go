package check

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"lockkeeper/jepsen"
)

// image is an image as the Dockerfile describes it.
type image struct {
	root            string // its files
	uid, gid        int
	dir             string // where a container starts
	entrypoint, cmd []string
	volumes         []string
	ports           []string // HOST/tcp
}

// absolute are the paths of a RUN line that begin at the root directory.
var absolute = regexp.MustCompile(`(\s)/(\w)`)

// buildImage carries out the Dockerfile once, with the Go of this test in place of its base image.
var buildImage = sync.OnceValues(func() (image, error) {
	work, err := os.MkdirTemp("", "lockkeeper-image")
	if err != nil {
		return image{}, err
	}
	imageDir = work
	f, err := os.Open("../Dockerfile")
	if err != nil {
		return image{}, err
	}
	defer f.Close()
	parsed, err := parser.Parse(f)
	if err != nil {
		return image{}, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return image{}, err
	}
	if n := len(stages); n != 2 || stages[1].BaseName != "scratch" {
		return image{}, fmt.Errorf("%d stages, and the last begins with %s", n, stages[n-1].BaseName)
	}
	built := filepath.Join(work, "build")
	if err := os.Mkdir(built, 0o755); err != nil {
		return image{}, err
	}
	for _, c := range stages[0].Commands {
		run, ok := c.(*instructions.RunCommand)
		if !ok || strings.Contains(run.CmdLine[0], "go mod download") {
			continue
		}
		cmd := exec.Command("sh", "-ec", absolute.ReplaceAllString(run.CmdLine[0], "${1}"+built+"/${2}"))
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			return image{}, fmt.Errorf("%s: %w: %s", run, err, out)
		}
	}
	img := image{root: filepath.Join(work, "root")}
	for _, c := range stages[1].Commands {
		if err := img.carryOut(c, built); err != nil {
			return image{}, fmt.Errorf("%s: %w", c, err)
		}
	}
	return img, nil
})

// carryOut carries out a command of the last stage.
func (img *image) carryOut(c instructions.Command, built string) (err error) {
	switch c := c.(type) {
	case *instructions.CopyCommand:
		to := filepath.Join(img.root, c.DestPath)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(built, c.SourcePaths[0]), to); err != nil || c.Chown == "" {
			return err
		}
		uid, gid, err := owner(c.Chown)
		return errors.Join(err, os.Chown(to, uid, gid))
	case *instructions.UserCommand:
		img.uid, img.gid, err = owner(c.User)
		return err
	case *instructions.WorkdirCommand:
		img.dir = c.Path
	case *instructions.EntrypointCommand:
		img.entrypoint = c.CmdLine
	case *instructions.CmdCommand:
		img.cmd = c.CmdLine
	case *instructions.VolumeCommand:
		img.volumes = c.Volumes
	case *instructions.ExposeCommand:
		img.ports = c.Ports
	default:
		return errors.New("the test does not know this command")
	}
	return nil
}

func owner(text string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(text, ":")
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	return uid, gid, errors.Join(err1, err2)
}

// imageDir is where buildImage has worked; empty if it has not.
var imageDir string

func TestMain(m *testing.M) {
	status := m.Run()
	if imageDir != "" {
		_ = os.RemoveAll(imageDir)
	}
	os.Exit(status)
}

// mount is a file or a directory that a container sees at a path of its own.
type mount struct {
	source, target string
	readOnly       bool
}

// container is a container of an image, run as an engine runs it: with namespaces of its own, as
// the image's user, without privileges.
type container struct {
	image
	args     []string // in place of the image's
	mounts   []mount
	readOnly bool // its root directory
	hostname string
}

// start runs a container at a place. It ends with the test.
func (c container) start(t *testing.T, at jepsen.Place) *running {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.CopyFS(root, os.DirFS(c.root)); err != nil {
		t.Fatal(err)
	}
	script := []string{"set -e", "hostname " + c.hostname, "mount --bind " + root + " " + root,
		"mkdir -p " + root + "/proc", "mount -t proc proc " + root + "/proc"}
	for _, m := range c.mounts {
		to := filepath.Join(root, m.target)
		script = append(script, fmt.Sprintf("mkdir -p %s; [ -d %s ] && mkdir -p %s || touch %s", filepath.Dir(to), m.source, to, to),
			fmt.Sprintf("mount --bind %s %s", m.source, to))
		if m.readOnly {
			script = append(script, "mount -o remount,bind,ro "+to)
		}
	}
	if c.readOnly {
		script = append(script, "mount -o remount,bind,ro "+root)
	}
	args := c.args
	if args == nil {
		args = c.cmd
	}
	// The shell stays the first process: with it ends all that is in its namespace, also when this
	// test is killed, which a process that has changed its user would not learn.
	script = append(script, fmt.Sprintf("env -i setpriv --clear-groups --no-new-privs "+
		"unshare --root=%s --wd=%s --setgid=%d --setuid=%d -- %s %s", root, c.dir, c.gid, c.uid,
		strings.Join(c.entrypoint, " "), strings.Join(args, " ")), "exit 0")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := at.Command("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", strings.Join(script, "\n"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: cmd, host: at.ClientHost}
	t.Cleanup(func() {
		r.stop(t)
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s:\n%s", c.hostname, text)
		}
	})
	return r
}

// running is a container that runs.
type running struct {
	cmd  *exec.Cmd
	host string
	once sync.Once
}

// stop stops a container as an engine does, by SIGTERM to its process.
func (r *running) stop(t *testing.T) {
	r.once.Do(func() {
		shell, err1 := childOf(r.cmd.Process.Pid)
		member, err2 := childOf(shell)
		if err := errors.Join(err1, err2); err != nil {
			t.Error(err)
		} else {
			_ = syscall.Kill(member, syscall.SIGTERM)
		}
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", r.host, err)
		}
	})
}

// childOf is the only child of a process.
func childOf(pid int) (int, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(children)))
}

// kill ends a container at once.
func (r *running) kill() {
	r.once.Do(func() {
		_ = r.cmd.Process.Kill() // its namespace ends with it
		_ = r.cmd.Wait()
	})
}

// await asks for a page until it is there.
func (r *running) await(t *testing.T, path string) {
	t.Helper()
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get("http://" + net.JoinHostPort(r.host, "8080") + path)
		if last = err; err != nil {
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
		last = fmt.Errorf("%s: %s (%w)", answer.Status, text, err)
	}
	t.Fatalf("%s%s: %v", r.host, path, last)
}

// listens waits until a client can connect.
func (r *running) listens(t *testing.T) {
	t.Helper()
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var c net.Conn
		if c, last = net.DialTimeout("tcp", net.JoinHostPort(r.host, "2181"), time.Second); last == nil {
			_ = c.Close()
			return
		}
	}
	t.Fatal(last)
}

// connect is a client of some hosts.
func connect(t *testing.T, hosts ...string) *zk.Conn {
	t.Helper()
	var addrs []string
	for _, h := range hosts {
		addrs = append(addrs, net.JoinHostPort(h, "2181"))
	}
	c, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// hosts makes a network for containers, and the file /etc/hosts with their names.
func hosts(t *testing.T, names ...string) (places []jepsen.Place, etcHosts mount) {
	t.Helper()
	if err := jepsen.FindNetwork(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	network, err := jepsen.NewNetwork(t.Context(), len(names), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	for i, p := range network.Places() {
		fmt.Fprintln(&text, p.PeerHost, names[i])
	}
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return network.Places(), mount{file, "/etc/hosts", true}
}

// volume is a new volume of the image: a directory of the image's user, as an engine copies it from
// the image.
func (img image) volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chown(dir, img.uid, img.gid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// built is the image; the test fails if it cannot be built.
func built(t *testing.T) image {
	t.Helper()
	img, err := buildImage()
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// The image alone, without a file, is a server; its data are there after a restart.
func TestImage(t *testing.T) {
	places, etcHosts := hosts(t, "alone")
	img := built(t)
	if !slices.Contains(img.volumes, img.dir) || img.uid == 0 {
		t.Errorf("volumes %v, starts in %s as user %d", img.volumes, img.dir, img.uid)
	}
	c := container{image: img, hostname: "alone", readOnly: true, mounts: []mount{etcHosts, {img.volume(t), img.dir, false}}}
	first := c.start(t, places[0])
	first.listens(t)
	client := connect(t, places[0].ClientHost)
	if _, err := client.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	first.stop(t)
	c.start(t, places[0]).listens(t)
	if text, _, err := connect(t, places[0].ClientHost).Get("/kept"); string(text) != "x" || err != nil {
		t.Errorf("after a restart: %q, %v", text, err)
	}
}
